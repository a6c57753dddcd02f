//! The facts of each algorithm, by its documentation: its bound, its parameter, and what tests ask for.
//!
//! The unit tests of the crate include this file too. It shares no code with the algorithms.

use std::time::Duration;

use crate::{Algorithm, Quota};

/// The facts of an algorithm.
#[derive(Debug)]
pub struct Facts {
    /// The name in the text of a quota.
    pub name: &'static str,
    /// The end of the names of its keys in Redis.
    pub tag: &'static str,
    pub parameter: Option<Parameter>,
    pub returns: Returns,
    /// The highest limit.
    pub max_limit: u64,
    /// Returns the most units that checks under a quota admit in any window.
    pub most: fn(&Quota) -> u64,
    /// The least part of a saturated limit that a fleet uses with leases, of what it uses without.
    pub leased_use: f64,
    /// The name in `proofs/Published.v`, or `None` if the bound is tested and not proven.
    pub proof: Option<&'static str>,
}

/// A row for each algorithm.
static FACTS: [Facts; Algorithm::EACH.len()] = [
    Facts {
        name: "sliding-log",
        tag: "l4",
        parameter: None,
        returns: Returns::AfterWindow,
        max_limit: Quota::MAX_LOGGED,
        most: Quota::limit,
        leased_use: 0.95,
        proof: Some("Log"),
    },
    Facts {
        name: "sliding-buckets",
        tag: "b4",
        parameter: Some(Parameter::Buckets),
        returns: Returns::AfterWindow,
        max_limit: Quota::MAX_LOGGED,
        most: Quota::limit,
        leased_use: 0.95,
        proof: Some("Buckets"),
    },
    Facts {
        name: "sliding-counter",
        tag: "c3",
        parameter: None,
        returns: Returns::ByPeriod,
        max_limit: Quota::MAX_LIMIT,
        most: |quota| 2 * quota.limit() - 1,
        leased_use: 0.95,
        proof: Some("Counter"),
    },
    Facts {
        name: "token-bucket",
        tag: "t2",
        parameter: Some(Parameter::Burst),
        returns: Returns::AtRate,
        max_limit: Quota::MAX_LIMIT,
        most: |quota| quota.capacity() + quota.limit() - 1,
        leased_use: 0.95,
        proof: Some("Bucket"),
    },
    Facts {
        name: "fixed-window",
        tag: "f3",
        parameter: None,
        returns: Returns::ByPeriod,
        max_limit: Quota::MAX_LIMIT,
        most: |quota| 2 * quota.limit(),
        leased_use: 0.95,
        proof: Some("Window"),
    },
];

/// The time at which units return.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Returns {
    /// Each unit a window after it was charged, or later.
    AfterWindow,
    /// The units of a period together, or bit by bit during the next period.
    ByPeriod,
    /// One unit after the other, up to the burst.
    AtRate,
}

/// The parameter of an algorithm.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Parameter {
    /// The number of sliding buckets.
    Buckets,
    Burst,
}

/// Returns the facts of an algorithm.
pub fn facts(algorithm: Algorithm) -> &'static Facts {
    let row = FACTS.iter().find(|it| it.name == algorithm.name());
    row.unwrap_or_else(|| panic!("testing/src/algorithms.rs has no row of {algorithm}"))
}

/// Returns the time at which units return.
pub fn returns(algorithm: Algorithm) -> Returns {
    facts(algorithm).returns
}

/// Returns the most units that checks under one quota admit in any window.
pub fn most(quota: &Quota) -> u64 {
    (facts(quota.algorithm()).most)(quota)
}

/// Returns the algorithm with the parameter that `choose` returns, if it has one.
pub fn with_parameter(algorithm: Algorithm, choose: impl FnOnce(Parameter) -> u64) -> Algorithm {
    let Some(parameter) = facts(algorithm).parameter else { return algorithm };
    let text = format!("{}({})", algorithm.name(), choose(parameter));
    Algorithm::try_from(text).expect("the parameter of the facts")
}

/// Returns the algorithm with these parameters.
pub fn with_parameters(algorithm: Algorithm, buckets: u16, burst: u64) -> Algorithm {
    with_parameter(algorithm, |parameter| match parameter {
        Parameter::Buckets => buckets.into(),
        Parameter::Burst => burst,
    })
}

/// Returns the algorithm of a quota, with the burst that `change` makes of its own if it has one.
pub fn with_burst(quota: &Quota, change: impl FnOnce(u64) -> u64) -> Algorithm {
    match returns(quota.algorithm()) {
        Returns::AtRate => with_parameter(quota.algorithm(), |_| change(quota.capacity())),
        Returns::AfterWindow | Returns::ByPeriod => quota.algorithm(),
    }
}

/// Returns all algorithms, with these parameters.
pub fn each(buckets: u16, burst: u64) -> [Algorithm; Algorithm::EACH.len()] {
    std::array::from_fn(|index| with_parameters(Algorithm::EACH[index], buckets, burst))
}

/// Returns the text of a quota of each algorithm with this limit and window, such as `5/h`, and the end of the
/// names of its keys in Redis.
pub fn each_quota(
    rate: &str,
    buckets: u16,
    burst: u64,
) -> [(String, &'static str); Algorithm::EACH.len()] {
    each(buckets, burst).map(|it| (format!("{rate} {it}"), facts(it).tag))
}

/// Returns the most units that checks under either of two quotas admit in the shorter window.
pub fn most_in_rollout(quotas: &[Quota; 2]) -> u64 {
    let largest = |units: fn(&Quota) -> u64| quotas.iter().map(units).max().unwrap_or_default();
    let limit = largest(Quota::limit);
    let [one, other] = quotas.each_ref().map(Quota::window);
    let divides = one.max(other).as_micros().is_multiple_of(one.min(other).as_micros());
    match returns(quotas[0].algorithm()) {
        Returns::AfterWindow => limit,
        Returns::AtRate => limit + largest(Quota::capacity),
        Returns::ByPeriod if divides => 2 * limit,
        Returns::ByPeriod => 3 * limit,
    }
}

/// Returns the most units in use in any window while leases of at most `longest` are rolled out for
/// `plain`, in one step, or in two.
pub fn most_in_rollout_of_leases(plain: &Quota, longest: Duration, in_two_steps: bool) -> u64 {
    match (returns(plain.algorithm()), in_two_steps) {
        (Returns::AfterWindow, true) => plain.limit(),
        (Returns::AtRate, true) => most(plain),
        (Returns::AtRate, false) => most(plain) + refill(plain, longest),
        (Returns::AfterWindow, false) | (Returns::ByPeriod, _) => 2 * plain.limit(),
    }
}

/// Returns the most units in use around a change of a leased quota, and the window for which this holds.
pub fn most_around_change(old: &Quota, new: &Quota) -> (u64, Duration) {
    let limit = old.limit().max(new.limit());
    let lease = old.lease().max(new.lease()).unwrap_or_default();
    let (longer, window) = (old.window().max(new.window()), old.window().min(new.window()));
    match returns(old.algorithm()) {
        Returns::AtRate => {
            let burst = old.counted().capacity().max(new.counted().capacity());
            let refill = |quota| refill(quota, window + lease);
            (burst + refill(old).max(refill(new)), window)
        }
        Returns::ByPeriod => {
            let periods = match longer.as_micros() % window.as_micros() {
                0 if longer == window => 2,
                0 => 4,
                _ => 6,
            };
            (periods * limit, window)
        }
        Returns::AfterWindow => (limit, old.counted().window().min(new.counted().window()) - lease),
    }
}

/// Returns the units that refill in a time, rounded up.
fn refill(quota: &Quota, time: Duration) -> u64 {
    (u128::from(quota.limit()) * time.as_micros()).div_ceil(quota.window().as_micros()) as u64
}
