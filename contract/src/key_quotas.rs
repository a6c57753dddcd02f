//! Quotas that are set for single keys.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use plimsoll::{Charge, Policy, Quota};

use super::checks::{START, each_algorithm};
use crate::{Fixture, hold, policy};

/// A time that no test reaches.
pub fn far() -> SystemTime {
    UNIX_EPOCH + Duration::from_secs(1 << 33)
}

fn set(policy: &Policy, key: &str, quota: Quota) {
    policy.set_key_quota(key, quota, far()).expect("there is room");
}

async fn left(fixture: &Fixture, charge: Charge<'_>) -> u64 {
    let decision = fixture.limiter.peek(charge).await.expect("an answer");
    decision.outcomes().next().expect("an outcome").standing().remaining
}

async fn admits(fixture: &Fixture, charge: Charge<'_>) -> bool {
    fixture.limiter.check(charge).await.expect("an answer").is_allowed()
}

pub async fn the_quota_of_a_key_applies_to_no_other(fixture: Fixture) {
    fixture.set(START);
    for (policy, large) in each_algorithm(4).iter().zip(each_algorithm(9)) {
        set(policy, "acme", large.quota());
        for (key, limit) in [("acme", 9), ("alice", 4)] {
            for spent in 0..limit {
                assert_eq!(left(&fixture, policy.charge(key, 1)).await, limit - spent);
                assert!(admits(&fixture, policy.charge(key, 1)).await, "{policy:?} {key}");
            }
            assert!(!admits(&fixture, policy.charge(key, 1)).await, "{policy:?} {key}");
        }
    }
}

pub async fn a_key_quota_that_begins_or_ends_keeps_what_is_spent(fixture: Fixture) {
    fixture.set(START);
    for ((policy, large), small) in
        each_algorithm(10).iter().zip(each_algorithm(25)).zip(each_algorithm(3))
    {
        assert!(admits(&fixture, policy.charge("acme", 6)).await);
        set(policy, "acme", large.quota());
        assert_eq!(left(&fixture, policy.charge("acme", 0)).await, 19);
        assert!(admits(&fixture, policy.charge("acme", 12)).await);
        assert!(policy.remove_key_quota("acme"));
        assert_eq!(left(&fixture, policy.charge("acme", 0)).await, 0);
        assert!(!admits(&fixture, policy.charge("acme", 1)).await);
        set(policy, "acme", large.quota());
        assert_eq!(left(&fixture, policy.charge("acme", 0)).await, 7);
        set(policy, "acme", small.quota());
        assert_eq!(left(&fixture, policy.charge("acme", 0)).await, 0, "{policy:?}");
    }
}

pub async fn a_key_quota_wins_over_the_quota_of_a_charge(fixture: Fixture) {
    fixture.set(START);
    for ((policy, of_key), of_charge) in
        each_algorithm(10).iter().zip(each_algorithm(25)).zip(each_algorithm(100))
    {
        assert!(admits(&fixture, policy.charge("acme", 6).with_quota(of_charge.quota())).await);
        assert_eq!(
            left(&fixture, policy.charge("acme", 0).with_quota(of_charge.quota())).await,
            94
        );
        set(policy, "acme", of_key.quota());
        assert_eq!(
            left(&fixture, policy.charge("acme", 0).with_quota(of_charge.quota())).await,
            19
        );
        policy.remove_key_quota("acme");
        assert_eq!(
            left(&fixture, policy.charge("acme", 0).with_quota(of_charge.quota())).await,
            94
        );
    }
}

pub async fn a_refund_and_a_settlement_are_under_the_key_quota(fixture: Fixture) {
    fixture.set(START);
    for (policy, large) in each_algorithm(10).iter().zip(each_algorithm(25)) {
        let before = hold(&fixture.limiter, policy.charge("acme", 7)).await;
        set(policy, "acme", large.quota());
        assert_eq!(before.refund().await.expect("an answer"), 7);
        assert_eq!(left(&fixture, policy.charge("acme", 0)).await, 25);
        let during = hold(&fixture.limiter, policy.charge("acme", 2)).await;
        during.settle(20).await.expect("an answer");
        assert_eq!(left(&fixture, policy.charge("acme", 0)).await, 5);
        let ended = hold(&fixture.limiter, policy.charge("acme", 4)).await;
        policy.remove_key_quota("acme");
        assert_eq!(ended.refund().await.expect("an answer"), 4);
        assert_eq!(left(&fixture, policy.charge("acme", 0)).await, 0);
        set(policy, "acme", large.quota());
        assert_eq!(left(&fixture, policy.charge("acme", 0)).await, 5, "{policy:?}");
    }
}

pub async fn a_settlement_keeps_the_window_of_the_key_quota(fixture: Fixture) {
    fixture.set(START);
    for (index, each) in each_algorithm(10).iter().enumerate() {
        let algorithm = each.quota().algorithm();
        fixture.set(START);
        let policy = policy(&format!("p{index}"), &format!("10/100ms {algorithm}"));
        set(&policy, "acme", format!("10/10000s {algorithm}").parse().expect("valid"));
        assert!(admits(&fixture, policy.charge("acme", 4)).await);
        let held = hold(&fixture.limiter, policy.charge("acme", 1)).await;
        held.settle(3).await.expect("an answer");
        fixture.set(START + 500_000);
        assert_eq!(left(&fixture, policy.charge("acme", 0)).await, 3, "{policy:?}");
    }
}
