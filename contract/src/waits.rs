//! Waits, to the microsecond.

use plimsoll::Decision;

use super::checks::{START, check, each_algorithm, remaining};
use crate::{Fixture, micros, policy};

const SECOND: u64 = 1_000_000;

pub async fn a_wait_is_exact(fixture: Fixture) {
    for policy in &each_algorithm(7) {
        fixture.set(START);
        assert!(check(&fixture, policy, 4).await.is_allowed());
        fixture.set(START + 300_001);
        assert!(check(&fixture, policy, 3).await.is_allowed());
        for cost in 1..=7 {
            fixture.set(START + 300_001);
            let Decision::Denied(denied) = check(&fixture, policy, cost).await else { continue };
            let wait = micros(denied.retry_after().expect("a wait"));
            for (wait, admitted) in [(wait - 1, false), (wait, true)] {
                fixture.set(START + 300_001 + wait);
                let charge = policy.charge("alice", cost);
                let peek = fixture.limiter.peek(charge).await.expect("an answer");
                assert_eq!(peek.is_allowed(), admitted, "{cost} units after {wait} us");
            }
        }
    }
}

pub async fn the_longest_wait_binds(fixture: Fixture) {
    fixture.set(START);
    let short = policy("short", "1/s");
    let long = policy("long", "1/3s");
    let charges = [short.charge("alice", 1), long.charge("alice", 1), short.charge("bob", 1)];
    assert!(fixture.limiter.check(charges.clone()).await.expect("an answer").is_allowed());
    let decision = fixture.limiter.check(charges.clone()).await.expect("an answer");
    assert_eq!(decision.binding().map(|it| it.charge().policy().name()), Some("long"));
    let Decision::Denied(denied) = decision else { panic!("all are spent") };
    assert_eq!(denied.retry_after().map(micros), Some(3 * SECOND));
}

pub async fn the_fewest_units_bind(fixture: Fixture) {
    fixture.set(START);
    let many = policy("many", "9/s");
    let few = policy("few", "4/s");
    let charges = [many.charge("alice", 1), few.charge("alice", 1), many.charge("bob", 1)];
    let decision = fixture.limiter.check(charges).await.expect("an answer");
    assert_eq!(decision.binding().map(|it| it.charge().policy().name()), Some("few"));
    let Decision::Allowed(allowed) = decision else { panic!("nothing is spent") };
    assert_eq!(allowed.remaining(), Some(3));
}

pub async fn a_full_key_waits_for_nothing(fixture: Fixture) {
    fixture.set(START);
    for policy in &each_algorithm(3) {
        let decision = check(&fixture, policy, 0).await;
        let standing = decision.outcomes().next().expect("an outcome").standing();
        assert_eq!((standing.limit, standing.remaining), (3, 3));
        assert!(standing.next_after.is_zero() && standing.reset_after.is_zero());
        assert_eq!(standing.retry_after, None);
    }
}

pub async fn time_that_runs_backward_returns_nothing(fixture: Fixture) {
    for policy in &each_algorithm(5) {
        fixture.set(START);
        assert!(check(&fixture, policy, 3).await.is_allowed());
        for back in [1, SECOND / 2, SECOND, 10 * SECOND] {
            fixture.set(START - back);
            assert_eq!(remaining(&fixture, policy).await, 2, "{policy:?}");
            // It waits from the time that the clock shows.
            let Decision::Denied(denied) = check(&fixture, policy, 3).await else {
                panic!("3 of 2")
            };
            let wait = micros(denied.retry_after().expect("a wait"));
            fixture.set(START - back + wait - 1);
            assert!(!check(&fixture, policy, 3).await.is_allowed());
            fixture.set(START - back + wait);
            let peek = fixture.limiter.peek(policy.charge("alice", 3)).await.expect("an answer");
            assert!(peek.is_allowed());
        }
    }
}

/// An hour forward and back. What was charged an hour ahead counts as charged now, and not for longer.
pub async fn a_clock_that_was_set_back_heals_within_a_window(fixture: Fixture) {
    for policy in &each_algorithm(5) {
        let window = micros(policy.quota().window());
        fixture.set(START);
        assert!(check(&fixture, policy, 5).await.is_allowed());
        fixture.set(START + 3_600 * SECOND);
        assert!(check(&fixture, policy, 5).await.is_allowed(), "one more bound");
        fixture.set(START + SECOND);
        let Decision::Denied(denied) = check(&fixture, policy, 5).await else { panic!("5 of 0") };
        let wait = micros(denied.retry_after().expect("a wait"));
        assert!(wait > 0 && wait <= 2 * window, "{policy:?}: {wait} us");
        // A denial has dated the key anew: it does not stand still.
        fixture.set(START + SECOND + wait - 1);
        assert!(!check(&fixture, policy, 5).await.is_allowed(), "{policy:?}");
        fixture.set(START + SECOND + wait);
        assert!(check(&fixture, policy, 5).await.is_allowed(), "{policy:?}");
    }
}

/// A clock that is one window behind the last charge has run backward. One that is a microsecond further
/// behind has been set back: the charge is taken as made now.
pub async fn a_clock_is_set_back_beyond_a_window(fixture: Fixture) {
    const WINDOW: u64 = 1_000_000;
    for policy in &each_algorithm(10) {
        fixture.set(START);
        assert!(check(&fixture, policy, 10).await.is_allowed());
        for (back, is_set_back) in [(WINDOW, false), (WINDOW + 1, true)] {
            fixture.set(START - back);
            let peek = fixture.limiter.peek(policy.charge("alice", 0)).await.expect("an answer");
            let standing = *peek.outcomes().next().expect("an outcome").standing();
            let wait = standing.reset_after.as_micros() as u64;
            assert_eq!(wait < 2 * WINDOW, is_set_back, "{policy:?} waits {wait}, {back} back");
        }
    }
}

/// A charge at an earlier time than the last one, in the previous period, counts beside it.
pub async fn a_charge_while_time_runs_backward_counts(fixture: Fixture) {
    for policy in &each_algorithm(10) {
        for time in [START, START - 1] {
            fixture.set(time);
            assert!(check(&fixture, policy, 5).await.is_allowed());
        }
        fixture.set(START);
        assert_eq!(remaining(&fixture, policy).await, 0, "{policy:?}");
    }
}
