//! Charges that lease units, and the counting of leased quotas.

use std::time::Duration;

use plimsoll::{Algorithm, Charge, Decision, Policy, store::Verdict};

use super::checks::{START, check, each_algorithm, remaining};
use crate::{Fixture, hold, policy};

/// Returns the number of units granted, or `None` if the check is denied.
async fn granted(fixture: &Fixture, charge: Charge<'_>) -> Option<u64> {
    let decision = fixture.limiter.check(charge).await.expect("an answer");
    let granted = decision.outcomes().next().expect("an outcome").granted();
    decision.is_allowed().then_some(granted)
}

pub async fn a_lease_takes_half_of_what_is_free_beyond_its_cost(fixture: Fixture) {
    fixture.set(START);
    for policy in &each_algorithm(10) {
        // Half of the free units beyond the cost, at most the maximum, and for costs above 1, too.
        for (key, cost, most, grants) in [
            ("alice", 1, u64::MAX, &[Some(5), Some(3), Some(1), Some(1), None][..]),
            ("bob", 1, 3, &[Some(3), Some(3), Some(2), Some(1), Some(1), None]),
            ("carol", 4, 100, &[Some(7), None]),
            ("dave", 0, 100, &[Some(5), Some(2), Some(1), Some(1), Some(0), Some(0)]),
            ("erin", 9, 9, &[Some(9), None]),
            ("frank", 10, 11, &[Some(10), None]),
        ] {
            for (index, expected) in grants.iter().enumerate() {
                let charge = policy.charge(key, cost).lease_up_to(most);
                let found = granted(&fixture, charge).await;
                assert_eq!(found, *expected, "{policy:?}, {key}, lease {index}");
            }
        }
        // Other charges can spend the units that a lease leaves.
        assert_eq!(granted(&fixture, policy.charge("carol", 3)).await, Some(3));
        let batch = policy.charge("dave", 0).lease_up_to(100).up_to(100);
        assert_eq!(granted(&fixture, batch).await, Some(1));
    }
}

pub async fn the_leases_of_one_check_see_each_other(fixture: Fixture) {
    fixture.set(START);
    for policy in &each_algorithm(10) {
        // Equal charges are one lease, and a shadow is decided after it.
        let lease = policy.charge("alice", 1).lease_up_to(100);
        let charges = [lease.clone(), policy.charge("alice", 1), lease.shadow()];
        let decision = fixture.limiter.check(charges).await.expect("an answer");
        let granted: Vec<_> = decision.outcomes().map(|it| it.granted()).collect();
        assert_eq!(granted, [6, 2], "{policy:?}");
        assert_eq!(remaining(&fixture, policy).await, 2);
    }
}

pub async fn a_lease_is_all_or_nothing(fixture: Fixture) {
    fixture.set(START);
    for leased in &each_algorithm(10) {
        let full = policy(&format!("full-{}", leased.name()), "1/s");
        let charges = [leased.charge("alice", 1).lease_up_to(8), full.charge("alice", 1)];
        let allowed = fixture.limiter.check(charges.clone()).await.expect("an answer");
        assert_eq!(allowed.outcomes().next().expect("an outcome").granted(), 5);
        assert!(!fixture.limiter.check(charges.clone()).await.expect("an answer").is_allowed());
        assert_eq!(remaining(&fixture, leased).await, 5);
    }
}

pub async fn a_lease_is_refunded_and_settled_like_a_charge(fixture: Fixture) {
    fixture.set(START);
    for policy in &each_algorithm(10) {
        let lease = policy.charge("alice", 1).lease_up_to(8);
        let reservation = hold(&fixture.limiter, lease.clone()).await;
        assert_eq!(remaining(&fixture, policy).await, 5);
        assert_eq!(reservation.refund().await.expect("an answer"), 5);
        assert_eq!(remaining(&fixture, policy).await, 10);
        hold(&fixture.limiter, lease.clone()).await.settle(2).await.expect("an answer");
        assert_eq!(remaining(&fixture, policy).await, 8);
        // A peek and a penalty take no lease.
        let peek = fixture.limiter.peek(lease.clone()).await.expect("an answer");
        assert_eq!(peek.outcomes().next().expect("an outcome").granted(), 0);
        let _ = fixture.limiter.penalize(lease.clone()).await.expect("an answer");
        assert_eq!(remaining(&fixture, policy).await, 7);
    }
}

/// A lease is refunded in parts, and the mark of a part follows from the debt after the charge.
pub async fn a_mark_has_the_debt_of_a_token_bucket(fixture: Fixture) {
    fixture.set(START);
    for policy in &each_algorithm(100) {
        let mut marked = Vec::new();
        for units in [30, 11, 1] {
            let Decision::Allowed(allowed) = check(&fixture, policy, units).await else {
                panic!("{policy:?} has units for {units}")
            };
            marked.push(allowed.into_receipt().lines()[0].mark.0[1]);
        }
        let algorithm = policy.quota().algorithm();
        let has_debts = matches!(algorithm, Algorithm::TokenBucket { .. });
        assert_eq!(marked == [30, 41, 42], has_debts, "{algorithm}: {marked:?}");
    }
}

/// The units that are free at some times after [`START`], in microseconds.
pub type Free<'a> = &'a [(u64, u64)];

/// Spends 8 units of `10/10s <algorithm> leased(1s)` at [`START`], some of them as a lease, and
/// compares the free units then and later.
pub async fn counts(fixture: &Fixture, algorithm: &str, capacity: u64, free: Free<'_>) {
    let text = format!("10/10s {algorithm} leased(1s)");
    let policy = policy(algorithm.split('(').next().expect("a name"), &text);
    fixture.set(START);
    assert_eq!(granted(fixture, policy.charge("alice", 1).lease_up_to(3)).await, Some(3));
    assert!(check(fixture, &policy, 5).await.is_allowed());
    for (time, free) in free {
        fixture.set(START + time);
        assert_eq!(remaining(fixture, &policy).await, *free, "{text} after {time} us");
    }
    // A cost over the capacity is refused for good, also by a lease.
    let decision =
        fixture.limiter.check(policy.charge("alice", capacity + 1).lease_up_to(99)).await;
    let decision = decision.expect("an answer");
    let outcome = decision.outcomes().next().expect("an outcome");
    assert_eq!(outcome.verdict(), Verdict::OverCapacity, "{text}");
    let standing = outcome.standing();
    assert_eq!((standing.limit, outcome.charge().quota()), (capacity, &policy.quota()));
    wait_is_exact(fixture, &policy, capacity).await;
}

/// Spends all of a quota, and waits until 3 units are back.
async fn wait_is_exact(fixture: &Fixture, policy: &Policy, capacity: u64) {
    let day = START + 86_400_000_000;
    fixture.set(day);
    assert!(check(fixture, policy, capacity).await.is_allowed());
    let denied = check(fixture, policy, 3).await;
    let standing = denied.outcomes().next().expect("an outcome").standing();
    let wait = standing.retry_after.expect("refused") - Duration::from_micros(1);
    for admitted in [false, true] {
        fixture.set(day + wait.as_micros() as u64 + u64::from(admitted));
        assert_eq!(check(fixture, policy, 3).await.is_allowed(), admitted, "{policy:?}");
    }
}
