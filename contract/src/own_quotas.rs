//! Charges with quotas of their own.

use plimsoll::{Charge, Policy, Quota, error::ErrorKind, store::Verdict};

use super::checks::{START, check, each_algorithm, remaining};
use crate::{Fixture, hold, micros, policy};

/// The quotas of [`each_algorithm`], under which charges are made, and policies with the same names
/// whose quotas apply to no charge.
fn contracts(limit: u64) -> Vec<(Policy, Quota)> {
    let contracts = each_algorithm(limit).into_iter().map(|named| {
        let other = Quota::per_day(1).with_algorithm(named.quota().algorithm());
        (Policy::new(named.name(), other.expect("valid")).expect("valid"), named.quota())
    });
    contracts.collect()
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

/// As a change of the policy's quota: spent units stay spent.
pub async fn a_changed_row_keeps_what_is_spent(fixture: Fixture) {
    fixture.set(START);
    for ((policy, before), (_, after)) in contracts(10).into_iter().zip(contracts(25)) {
        assert!(admits(&fixture, policy.charge("alice", 6).with_quota(before)).await);
        assert_eq!(left(&fixture, policy.charge("alice", 0).with_quota(after)).await, 19);
        assert!(admits(&fixture, policy.charge("alice", 19).with_quota(after)).await);
        assert_eq!(left(&fixture, policy.charge("alice", 0).with_quota(before)).await, 0);
    }
    let log = policy("log", "1/day");
    let short = log.charge("alice", 4).with_quota("10/s".parse().expect("valid"));
    let long = log.charge("alice", 4).with_quota("10/3s".parse().expect("valid"));
    assert!(admits(&fixture, short).await);
    assert!(admits(&fixture, long.clone()).await);
    // Each unit leaves with the window that it was charged under.
    for (millis, free) in [(999, 2), (1_000, 6), (2_999, 6), (3_000, 10)] {
        fixture.set(START + millis * 1_000);
        assert_eq!(left(&fixture, long.clone()).await, free, "after {millis} ms");
    }
}

pub async fn equal_charges_need_one_quota(fixture: Fixture) {
    fixture.set(START);
    for ((policy, small), (_, large)) in contracts(4).into_iter().zip(contracts(9)) {
        let few = policy.charge("alice", 2).with_quota(small);
        let other = policy.charge("alice", 1).with_quota(large);
        for wrong in [[few.clone(), other], [few.clone(), policy.charge("alice", 1).shadow()]] {
            let error = fixture.limiter.check(wrong).await.expect_err("two quotas");
            assert_eq!(error.kind(), ErrorKind::Invalid);
        }
        let charges = [few, policy.charge("alice", 3).with_quota(small)];
        let decision = fixture.limiter.check(charges).await.expect("an answer");
        let outcomes: Vec<_> = decision.outcomes().collect();
        let [outcome] = &outcomes[..] else { panic!("they are one charge: {outcomes:?}") };
        assert_eq!(outcome.verdict(), Verdict::OverCapacity);
        assert_eq!(outcome.standing().limit, small.limit());
    }
}

pub async fn a_wait_follows_its_own_quota(fixture: Fixture) {
    for (policy, quota) in contracts(5) {
        fixture.set(START);
        let charge = policy.charge("alice", 3).with_quota(quota);
        assert!(admits(&fixture, charge.clone()).await);
        let decision = fixture.limiter.check(charge.clone()).await.expect("an answer");
        let standing = *decision.binding().expect("a denial").standing();
        let wait = micros(standing.retry_after.expect("a wait"));
        assert!(wait <= 2_000_000, "{quota:?} waits {wait} us");
        fixture.set(START + wait - 1);
        assert!(!admits(&fixture, charge.clone()).await, "{quota:?}");
        fixture.set(START + wait);
        assert!(admits(&fixture, charge.clone()).await, "{quota:?}");
    }
}

pub async fn a_refund_and_a_settlement_are_under_the_own_quota(fixture: Fixture) {
    fixture.set(START);
    for (policy, quota) in contracts(10) {
        let slot = hold(&fixture.limiter, policy.charge("alice", 7).with_quota(quota)).await;
        assert_eq!(slot.refund().await.expect("an answer"), 7);
        assert_eq!(left(&fixture, policy.charge("alice", 0).with_quota(quota)).await, 10);
        hold(&fixture.limiter, policy.charge("alice", 2).with_quota(quota))
            .await
            .settle(5)
            .await
            .expect("an answer");
        assert_eq!(left(&fixture, policy.charge("alice", 0).with_quota(quota)).await, 5);
        hold(&fixture.limiter, policy.charge("alice", 4).with_quota(quota))
            .await
            .settle(1)
            .await
            .expect("an answer");
        assert_eq!(left(&fixture, policy.charge("alice", 0).with_quota(quota)).await, 4);
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
