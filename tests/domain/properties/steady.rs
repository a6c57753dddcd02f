//! A million steps at rates that do not divide: nothing drifts.

use std::time::Duration;

use plimsoll::{Algorithm, Policy, Quota};
use plimsoll_testing::{memory, now};

const STEPS: u64 = 1_000_000;

/// Asks a million times at even steps, much faster than the rate, and counts what is admitted.
fn admitted(quota: Quota, step: u64) -> u64 {
    let fixture = now(memory());
    let policy = Policy::new("steady", quota).expect("valid");
    let mut admitted = 0;
    for index in 0..STEPS {
        fixture.set(index * step);
        let decision = now(fixture.limiter.check(policy.charge("alice", 1)));
        admitted += u64::from(decision.expect("the store answers").is_allowed());
    }
    admitted
}

fn rates() -> [(u64, Duration, u64); 3] {
    [
        (3, Duration::from_secs(1), 33_331),
        (7, Duration::from_secs(60), 857_143),
        (1_000, Duration::from_secs(86_400), 8_639_999),
    ]
}

#[test]
fn a_token_bucket_admits_exactly_its_rate() {
    for (limit, window, step) in rates() {
        let bucket = Algorithm::TokenBucket { burst: 5 };
        let quota = Quota::new(limit, window, bucket).expect("valid");
        // The burst, and what has been refilled up to the last step. Steps are finer than the
        // time of a unit, so that the bucket is never full again.
        let last = u128::from((STEPS - 1) * step);
        let refilled = last * u128::from(limit) / window.as_micros();
        assert_eq!(u128::from(admitted(quota, step)), 5 + refilled, "{quota}");
    }
}

#[test]
fn a_token_bucket_of_1_admits_one_at_a_time() {
    let [(limit, window, step), ..] = rates();
    let bucket = Algorithm::TokenBucket { burst: 1 };
    let quota = Quota::new(limit, window, bucket).expect("valid");
    let exact = one_at_a_time(limit, window.as_micros(), step);
    assert_eq!(u128::from(admitted(quota, step)), exact);
}

/// With a burst of 1: a unit is ready exactly `window / limit` after the last was taken.
fn one_at_a_time(limit: u64, window: u128, step: u64) -> u128 {
    let per_unit = window.div_ceil(u128::from(limit) * u128::from(step));
    u128::from(STEPS - 1) / per_unit + 1
}

#[test]
fn a_log_admits_exactly_its_limit_a_window() {
    let [_, (limit, window, step), _] = rates();
    let quota = Quota::new(limit, window, Algorithm::SlidingLog).expect("valid");
    assert_eq!(admitted(quota, step), in_a_log(limit, window.as_micros() as u64, step), "{quota}");
}

#[test]
fn a_fixed_window_admits_exactly_its_limit_a_window() {
    let [_, (limit, window, step), _] = rates();
    let quota = Quota::new(limit, window, Algorithm::FixedWindow).expect("valid");
    let exact = in_windows(limit, window.as_micros() as u64, step);
    assert_eq!(admitted(quota, step), exact, "{quota}");
}

/// Each window admits its first steps, up to the limit.
fn in_windows(limit: u64, window: u64, step: u64) -> u64 {
    let last = (STEPS - 1) * step / window;
    let steps_before = |edge: u64| edge.div_ceil(step).min(STEPS);
    (0..=last)
        .map(|index| (steps_before((index + 1) * window) - steps_before(index * window)).min(limit))
        .sum()
}

/// The log admits `limit` steps in a row, then the same again as soon as the first has left.
fn in_a_log(limit: u64, window: u64, step: u64) -> u64 {
    let again = window.div_ceil(step);
    let (rounds, rest) = (STEPS / again, STEPS % again);
    rounds * limit.min(again) + rest.min(limit)
}
