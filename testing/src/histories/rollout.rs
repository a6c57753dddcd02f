//! A service that is rolled out: old and new instances check the same keys under two quotas.

use std::time::Duration;

use plimsoll::{Algorithm, Policy, Quota};

use crate::{
    Fixture,
    algorithms::{
        Parameter, Returns, most_in_rollout, most_in_rollout_of_leases, returns, with_parameter,
    },
    micros, most_in_any_window, now,
    oracle::counted,
    seed::Random,
};

/// Plays checks under one of two quotas, at random, and checks the bound that the guide publishes: the larger
/// limit (and burst) in the shorter window.
pub fn run(fixture: &Fixture, algorithm: Algorithm, seed: u64) {
    let random = &mut Random(seed);
    let quotas = [(); 2].map(|()| quota(random, algorithm));
    let windows = quotas.map(|it| micros(it.window()));
    // Two handles of one name, as two instances have them.
    let policies = quotas.map(|quota| Policy::new("shared", quota).expect("valid"));
    let mut time = 1_700_000_000_000_000 + random.below(1_000_000_000);
    let mut spent = [Vec::new(), Vec::new()];
    let window = windows[0].min(windows[1]);
    // For a while the one, then the other; or in turn.
    let mut instance = 0;
    let steady = 1 + random.below(12);
    for _ in 0..120 {
        time += match random.below(4) {
            0 => random.below(window),
            1 => windows[random.below(2) as usize] / 4,
            _ => random.below(window / 8 + 1),
        };
        if random.below(5) == 0 {
            // To an edge of a window, where periods end.
            let edge = windows[random.below(2) as usize];
            time = time / edge * edge + edge - random.below(2);
        }
        fixture.set(time);
        if random.below(steady) == 0 {
            instance = 1 - instance;
        }
        let policy = &policies[instance];
        let key = format!("{seed}");
        let left = now(fixture.limiter.peek(policy.charge(&key, 0))).expect("an answer");
        let left = left.outcomes().next().expect("an outcome").standing().remaining;
        let cost = if random.below(3) == 0 { 1 } else { left.max(1) };
        if now(fixture.limiter.check(policy.charge(&key, cost))).expect("an answer").is_allowed() {
            spent[instance].push((time, cost));
        }
    }
    let mut all = spent.concat();
    all.sort_unstable();
    let most = most_in_any_window(&all, window);
    let bound = u128::from(most_in_rollout(&quotas));
    assert!(most <= bound, "{most} of {bound} in {window} us of {quotas:?}, {seed:#x}: {all:?}");
}

fn quota(random: &mut Random, algorithm: Algorithm) -> Quota {
    let limit = random.one(&[1, 3, 10, 10, 25]);
    let window = random.one(&[2_000, 3_000, 6_000, 10_000, 60_000]);
    let algorithm = with_parameter(algorithm, |parameter| match parameter {
        Parameter::Buckets => random.one(&[1, 2, 6, 60]),
        Parameter::Burst => random.one(&[1, 5, 10, 40]),
    });
    Quota::new(limit, Duration::from_micros(window), algorithm).expect("in bounds")
}

/// The steps in which a lease is rolled out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Steps {
    /// Some instances lease, and others do not, or for another time.
    One,
    /// Some instances lease, and others have the quota by which the store counts that.
    Two,
}

/// Plays checks of two instances, of which one or both lease: they use their units later, and at the
/// latest when the lease ends. Holds the bound that the guide publishes for the units in use.
pub fn run_leased(fixture: &Fixture, algorithm: Algorithm, seed: u64, steps: Steps) {
    let random = &mut Random(seed);
    let plain = leasable(random, algorithm);
    let window = micros(plain.window());
    let leases = [(); 2].map(|()| window / 1_000 / 10 / random.one(&[1, 1, 2, 7]));
    let [first, second] = leases.map(|lease| plain.leased(Duration::from_millis(lease)));
    let [first, second] = [first, second].map(|quota| quota.expect("in bounds"));
    let other = random.one(&[plain, second]);
    let quotas = [first, if steps == Steps::Two { counted(&first, true) } else { other }];
    let policies = quotas.map(|quota| Policy::new("shared", counted(&quota, true)).expect("valid"));
    let mut time = 1_700_000_000_000_000 + random.below(1_000_000_000);
    let mut uses = Vec::new();
    let key = format!("{steps:?}-{seed}");
    for _ in 0..120 {
        time += match random.below(5) {
            0 => random.below(window),
            1 => window - random.below(window / 5),
            2 => window / 4,
            _ => random.below(window / 30 + 1),
        };
        fixture.set(time);
        let instance = random.below(2) as usize;
        let lease = quotas[instance].lease().map_or(0, micros);
        let longest = match returns(algorithm) {
            // The units of a period are spent in it.
            Returns::ByPeriod => lease.min(window - 1 - time % window),
            Returns::AfterWindow | Returns::AtRate => lease,
        };
        let policy = &policies[instance];
        let left = now(fixture.limiter.peek(policy.charge(&key, 0))).expect("an answer");
        let left = left.outcomes().next().expect("an outcome").standing().remaining;
        let units = if random.below(3) == 0 { 1 } else { left.max(1) };
        if now(fixture.limiter.check(policy.charge(&key, units))).expect("an answer").is_allowed() {
            let between = random.below(longest + 1);
            let late = random.one(&[0, longest, longest, between]);
            uses.push((time + late, units));
        }
    }
    uses.sort_unstable();
    let most = most_in_any_window(&uses, window);
    let longest = quotas.iter().filter_map(Quota::lease).max().expect("one leases");
    let bound = u128::from(most_in_rollout_of_leases(&plain, longest, steps == Steps::Two));
    assert!(most <= bound, "{most} of {bound} in {window} us of {quotas:?}, {seed:#x}: {uses:?}");
}

/// A quota that can be leased for a tenth of its window.
fn leasable(random: &mut Random, algorithm: Algorithm) -> Quota {
    let limit = random.one(&[1, 3, 10, 10, 25]);
    let window = random.one(&[500_000, 700_001, 1_000_000, 10_000_000]);
    let algorithm = with_parameter(algorithm, |parameter| match parameter {
        Parameter::Buckets => random.one(&[1, 2, 6, 60]),
        Parameter::Burst => limit / 10 + random.one(&[2, 5, 10, 40]),
    });
    Quota::new(limit, Duration::from_micros(window), algorithm).expect("in bounds")
}
