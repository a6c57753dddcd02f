//! The bounds that the documentation publishes, and the parameters of algorithms in tests.
//!
//! The unit tests of the crate include this file too. It shares no code with the algorithms.

#![allow(unreachable_patterns, reason = "only other packages need the last arm of a match")]

use std::time::Duration;

use crate::{Algorithm, Quota};

/// The time at which units return, by the documentation of the algorithm.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Returns {
    /// Each unit a window after it was charged, or later.
    AfterWindow,
    /// The units of a period together, or bit by bit during the next period.
    ByPeriod,
    /// One unit after the other, up to `burst` units.
    AtRate { burst: u64 },
}

/// Returns the time at which units return.
pub fn returns(algorithm: Algorithm) -> Returns {
    match algorithm {
        Algorithm::SlidingLog | Algorithm::SlidingBuckets(_) => Returns::AfterWindow,
        Algorithm::SlidingCounter | Algorithm::FixedWindow => Returns::ByPeriod,
        Algorithm::TokenBucket { burst } => Returns::AtRate { burst },
        other => unknown(other),
    }
}

/// Returns the most units that checks under one quota admit in any window.
pub fn most(quota: &Quota) -> u64 {
    let limit = quota.limit();
    match quota.algorithm() {
        Algorithm::SlidingLog | Algorithm::SlidingBuckets(_) => limit,
        Algorithm::SlidingCounter => 2 * limit - 1,
        Algorithm::TokenBucket { burst } => burst + limit - 1,
        Algorithm::FixedWindow => 2 * limit,
        other => unknown(other),
    }
}

/// Returns the most units that checks under either of two quotas admit in the shorter window.
pub fn most_in_rollout(quotas: &[Quota; 2]) -> u64 {
    let largest = |units: fn(&Quota) -> u64| quotas.iter().map(units).max().unwrap_or_default();
    let limit = largest(Quota::limit);
    let [one, other] = quotas.each_ref().map(Quota::window);
    let divides = one.max(other).as_micros().is_multiple_of(one.min(other).as_micros());
    match returns(quotas[0].algorithm()) {
        Returns::AfterWindow => limit,
        Returns::AtRate { .. } => limit + largest(Quota::capacity),
        Returns::ByPeriod if divides => 2 * limit,
        Returns::ByPeriod => 3 * limit,
    }
}

/// Returns the most units in use in any window while leases of at most `longest` are rolled out for
/// `plain`, in one step, or in two.
pub fn most_in_rollout_of_leases(plain: &Quota, longest: Duration, in_two_steps: bool) -> u64 {
    match (returns(plain.algorithm()), in_two_steps) {
        (Returns::AfterWindow, true) => plain.limit(),
        (Returns::AtRate { .. }, true) => most(plain),
        (Returns::AtRate { .. }, false) => most(plain) + refill(plain, longest),
        (Returns::AfterWindow, false) | (Returns::ByPeriod, _) => 2 * plain.limit(),
    }
}

/// Returns the most units in use around a change of a leased quota, and the window for which this holds.
pub fn most_around_change(old: &Quota, new: &Quota) -> (u64, Duration) {
    let limit = old.limit().max(new.limit());
    let lease = old.lease().max(new.lease()).unwrap_or_default();
    let (longer, window) = (old.window().max(new.window()), old.window().min(new.window()));
    match returns(old.algorithm()) {
        Returns::AtRate { .. } => {
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

/// The parameter of an algorithm.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Parameter {
    /// The number of sliding buckets.
    Buckets,
    Burst,
}

/// Returns the algorithm with the parameter that `choose` returns, if it has one.
pub fn with_parameter(algorithm: Algorithm, choose: impl FnOnce(Parameter) -> u64) -> Algorithm {
    match algorithm {
        Algorithm::SlidingBuckets(_) => {
            Algorithm::SlidingBuckets(choose(Parameter::Buckets) as u16)
        }
        Algorithm::TokenBucket { .. } => Algorithm::TokenBucket { burst: choose(Parameter::Burst) },
        Algorithm::SlidingLog | Algorithm::SlidingCounter | Algorithm::FixedWindow => algorithm,
        other => unknown(other),
    }
}

/// Returns the algorithm with these parameters.
pub fn with_parameters(algorithm: Algorithm, buckets: u16, burst: u64) -> Algorithm {
    with_parameter(algorithm, |parameter| match parameter {
        Parameter::Buckets => buckets.into(),
        Parameter::Burst => burst,
    })
}

fn unknown(algorithm: Algorithm) -> ! {
    panic!("testing/src/algorithms.rs does not know {algorithm}")
}
