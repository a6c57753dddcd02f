//! The promises of a shared store beside the contract of all stores.

use plimsoll::{Policy, Quota};

use super::{
    checks::{START, check, each_algorithm, remaining},
    leases::counts,
};
use crate::{Fixture, hold, policy};

const SECOND: u64 = 1_000_000;

/// A unit is used until a second after it is granted, so it counts over 11 seconds. The burst is
/// lower by the unit that refills in a second. Periods count as they are.
pub async fn a_leased_quota_is_counted_for_longer(fixture: Fixture) {
    let log = [(0, 2), (11 * SECOND - 1, 2), (11 * SECOND, 10)];
    counts(&fixture, "sliding-log", 10, &log).await;
    // A bucket is 2.2 s long, and the one at hand ends after 0.6 s.
    let buckets = [(0, 2), (11_600_000 - 1, 2), (11_600_000, 10)];
    counts(&fixture, "sliding-buckets(5)", 10, &buckets).await;
    let counter = [(0, 2), (10 * SECOND, 2), (15 * SECOND, 6), (20 * SECOND, 10)];
    counts(&fixture, "sliding-counter", 10, &counter).await;
    let bucket = [(0, 1), (SECOND - 1, 1), (SECOND, 2), (8 * SECOND, 9), (20 * SECOND, 9)];
    counts(&fixture, "token-bucket(10)", 9, &bucket).await;
    let fixed = [(0, 2), (10 * SECOND - 1, 2), (10 * SECOND, 10)];
    counts(&fixture, "fixed-window", 10, &fixed).await;
}

/// Refunds, settlements and penalties find the state as it was counted.
pub async fn what_a_leased_quota_has_spent_is_refunded(fixture: Fixture) {
    for each in &each_algorithm(10) {
        let algorithm = each.quota().algorithm();
        let text = format!("10/10s {algorithm} leased(1s)");
        let policy = policy(algorithm.name(), &text);
        let capacity = policy.quota().counted().capacity();
        fixture.set(START);
        let first = hold(&fixture.limiter, policy.charge("alice", 3)).await;
        let second = hold(&fixture.limiter, policy.charge("alice", 2)).await;
        let third = fixture.limiter.penalize(policy.charge("alice", 1)).await.expect("an answer");
        assert_eq!(remaining(&fixture, &policy).await, capacity - 6, "{text}");
        assert_eq!(first.refund().await.expect("an answer"), 3, "{text}");
        second.settle(1).await.expect("an answer");
        assert_eq!(remaining(&fixture, &policy).await, capacity - 2, "{text}");
        // The lease ends, or another one begins, before the refund.
        policy.set_quota(format!("10/10s {algorithm}").parse().expect("valid"));
        let penalty = fixture.limiter.hold(third.into_receipt());
        assert_eq!(penalty.refund().await.expect("an answer"), 1, "{text}");
        assert_eq!(remaining(&fixture, &policy).await, 9, "{text}");
    }
}

/// Its units still count, so they come back.
pub async fn a_refund_comes_in_time_until_the_lease_is_over(fixture: Fixture) {
    for algorithm in ["sliding-log", "sliding-buckets(11)"] {
        let name = algorithm.split('(').next().expect("a name");
        let policy = policy(name, &format!("10/10s {algorithm} leased(1s)"));
        // An edge of the buckets, which are a second long.
        fixture.set(START);
        let early = hold(&fixture.limiter, policy.charge("alice", 3)).await;
        let late = hold(&fixture.limiter, policy.charge("alice", 2)).await;
        fixture.set(START + 11 * SECOND - 1);
        assert_eq!(early.refund().await.expect("an answer"), 3, "{algorithm}");
        assert_eq!(remaining(&fixture, &policy).await, 8, "{algorithm}");
        fixture.set(START + 12 * SECOND);
        assert_eq!(late.refund().await.expect("an answer"), 0, "{algorithm}");
        assert_eq!(remaining(&fixture, &policy).await, 10, "{algorithm}");
    }
}

fn change(policy: &Policy, quota: &str) {
    policy.set_quota(quota.parse::<Quota>().expect("valid"));
}

async fn free_at(fixture: &Fixture, policy: &Policy, times: &[(u64, u64)]) {
    for (time, free) in times {
        fixture.set(START + time);
        assert_eq!(remaining(fixture, policy).await, *free, "{policy:?} after {time} us");
    }
}

/// As any other change of the window: units leave at the earlier of the old and the new rule.
pub async fn a_lease_that_begins_keeps_no_old_unit_longer(fixture: Fixture) {
    let log = policy("log", "10/10s");
    fixture.set(START);
    assert!(check(&fixture, &log, 4).await.is_allowed());
    change(&log, "10/10s leased(1s)");
    fixture.set(START + SECOND);
    assert!(check(&fixture, &log, 2).await.is_allowed());
    let times = [(10 * SECOND - 1, 4), (10 * SECOND, 8), (12 * SECOND - 1, 8), (12 * SECOND, 10)];
    free_at(&fixture, &log, &times).await;
}

pub async fn a_lease_that_ends_lets_go_sooner(fixture: Fixture) {
    let log = policy("log", "10/10s leased(1s)");
    fixture.set(START);
    assert!(check(&fixture, &log, 4).await.is_allowed());
    change(&log, "10/10s leased(500ms)");
    free_at(&fixture, &log, &[(10_500_000 - 1, 6), (10_500_000, 10)]).await;
    fixture.set(START);
    change(&log, "10/10s");
    free_at(&fixture, &log, &[(10 * SECOND - 1, 6), (10 * SECOND, 10)]).await;
}

/// A change of the lease of a bucket is a change of its burst.
pub async fn a_lease_of_a_bucket_moves_no_debt(fixture: Fixture) {
    let bucket = policy("bucket", "10/10s token-bucket(10)");
    fixture.set(START);
    assert!(check(&fixture, &bucket, 10).await.is_allowed());
    change(&bucket, "10/10s token-bucket(10) leased(1s)");
    free_at(&fixture, &bucket, &[(0, 0), (2 * SECOND - 1, 0), (2 * SECOND, 1)]).await;
    change(&bucket, "10/10s token-bucket(10)");
    free_at(&fixture, &bucket, &[(2 * SECOND, 2), (10 * SECOND, 10)]).await;
}
