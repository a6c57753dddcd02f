//! Charges with quotas of their own.

use std::time::Duration;

use plimsoll::{Charge, Policy, Quota, error::ErrorKind, store::Verdict};

use super::checks::{START, check, each_algorithm, remaining};
use crate::{Fixture, hold, policy};

/// The quotas of [`each_algorithm`], under which charges are made, and policies with the same names
/// whose quotas apply to no charge.
fn contracts(limit: u64) -> Vec<(Policy, Quota)> {
    let contract = |named: &Policy| {
        let other = Quota::per_day(1).with_algorithm(named.quota().algorithm());
        (Policy::new(named.name(), other.expect("valid")).expect("valid"), named.quota())
    };
    each_algorithm(limit).iter().map(contract).collect()
}

async fn left(fixture: &Fixture, charge: Charge<'_>) -> u64 {
    let decision = fixture.limiter.peek(charge).await.expect("an answer");
    decision.outcomes().next().expect("an outcome").standing().remaining
}

async fn admits(fixture: &Fixture, charge: Charge<'_>) -> bool {
    fixture.limiter.check(charge).await.expect("an answer").is_allowed()
}

pub async fn each_key_has_its_own_limit(fixture: Fixture) {
    fixture.set(START);
    for ((policy, small), (_, large)) in contracts(2).into_iter().zip(contracts(7)) {
        for (key, quota) in [("small", small), ("large", large)] {
            for spent in 0..quota.limit() {
                let charge = policy.charge(key, 1).with_quota(quota);
                assert_eq!(charge.quota(), &quota);
                assert_eq!(left(&fixture, charge.clone()).await, quota.limit() - spent);
                assert!(admits(&fixture, charge).await, "{policy:?} {quota:?}");
            }
            assert!(!admits(&fixture, policy.charge(key, 1).with_quota(quota)).await);
        }
        // In one check as well.
        let both = [("small", small), ("other", large)]
            .map(|(key, quota)| policy.charge(key, 3).with_quota(quota));
        let decision = fixture.limiter.check(both).await.expect("an answer");
        let verdicts: Vec<_> = decision.outcomes().map(|it| it.verdict()).collect();
        assert_eq!(verdicts, [Verdict::OverCapacity, Verdict::Passed]);
    }
}

/// As a change of the policy's quota: what is spent stays spent.
pub async fn a_changed_row_keeps_what_is_spent(fixture: Fixture) {
    fixture.set(START);
    for ((policy, before), (_, after)) in contracts(10).into_iter().zip(contracts(25)) {
        let charge = |quota, cost| policy.charge("alice", cost).with_quota(quota);
        assert!(admits(&fixture, charge(before, 6)).await);
        assert_eq!(left(&fixture, charge(after, 0)).await, 19);
        assert!(admits(&fixture, charge(after, 19)).await);
        assert_eq!(left(&fixture, charge(before, 0)).await, 0);
    }
    let log = policy("log", "1/day");
    let charge = |quota: &str| log.charge("alice", 4).with_quota(quota.parse().expect("valid"));
    assert!(admits(&fixture, charge("10/s")).await);
    assert!(admits(&fixture, charge("10/3s")).await);
    // Each unit leaves with the window that it was charged under.
    for (millis, free) in [(999, 2), (1_000, 6), (2_999, 6), (3_000, 10)] {
        fixture.set(START + millis * 1_000);
        assert_eq!(left(&fixture, charge("10/3s")).await, free, "after {millis} ms");
    }
}

pub async fn equal_charges_need_one_quota(fixture: Fixture) {
    fixture.set(START);
    for ((policy, small), (_, large)) in contracts(4).into_iter().zip(contracts(9)) {
        let own = |cost, quota| policy.charge("alice", cost).with_quota(quota);
        for wrong in
            [[own(2, small), own(1, large)], [own(2, small), policy.charge("alice", 1).shadow()]]
        {
            assert!(
                fixture
                    .limiter
                    .check(wrong)
                    .await
                    .is_err_and(|error| error.kind() == ErrorKind::Invalid)
            );
        }
        let decision = fixture.limiter.check([own(2, small), own(3, small)]).await;
        let decision = decision.expect("an answer");
        let outcomes: Vec<_> = decision.outcomes().collect();
        let [outcome] = &outcomes[..] else { panic!("they are one charge: {outcomes:?}") };
        assert_eq!(outcome.verdict(), Verdict::OverCapacity);
        assert_eq!(outcome.standing().limit, small.limit());
    }
}

pub async fn a_wait_follows_its_own_quota(fixture: Fixture) {
    for (policy, quota) in contracts(5) {
        fixture.set(START);
        let charge = || policy.charge("alice", 3).with_quota(quota);
        assert!(admits(&fixture, charge()).await);
        let decision = fixture.limiter.check(charge()).await.expect("an answer");
        let wait = decision.binding().expect("a denial").standing().retry_after;
        let wait = wait.expect("a wait");
        assert!(wait <= Duration::from_secs(2), "{quota:?} waits {wait:?}");
        let wait = u64::try_from(wait.as_micros()).expect("small");
        fixture.set(START + wait - 1);
        assert!(!admits(&fixture, charge()).await, "{quota:?}");
        fixture.set(START + wait);
        assert!(admits(&fixture, charge()).await, "{quota:?}");
    }
}

pub async fn a_refund_and_a_settlement_are_under_the_own_quota(fixture: Fixture) {
    fixture.set(START);
    for (policy, quota) in contracts(10) {
        let charge = |cost| policy.charge("alice", cost).with_quota(quota);
        let slot = hold(&fixture.limiter, charge(7)).await;
        assert_eq!(slot.refund().await.expect("an answer"), 7);
        assert_eq!(left(&fixture, charge(0)).await, 10);
        hold(&fixture.limiter, charge(2)).await.settle(5).await.expect("an answer");
        assert_eq!(left(&fixture, charge(0)).await, 5);
        hold(&fixture.limiter, charge(4)).await.settle(1).await.expect("an answer");
        assert_eq!(left(&fixture, charge(0)).await, 4);
    }
}

pub async fn the_policy_does_not_change_an_own_quota(fixture: Fixture) {
    fixture.set(START);
    for ((policy, own), (_, new)) in contracts(10).into_iter().zip(contracts(3)) {
        let slot = hold(&fixture.limiter, policy.charge("alice", 6).with_quota(own)).await;
        policy.set_quota(new);
        assert_eq!(left(&fixture, policy.charge("alice", 0).with_quota(own)).await, 4);
        // The settlement is under the quota of the charge, and leaves no unit of it behind.
        slot.settle(9).await.expect("an answer");
        assert_eq!(left(&fixture, policy.charge("alice", 0).with_quota(own)).await, 1);
        assert_eq!(remaining(&fixture, &policy).await, 0);
        assert!(!check(&fixture, &policy, 1).await.is_allowed());
    }
}
