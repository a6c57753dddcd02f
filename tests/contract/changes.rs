//! Quotas that change while keys have spent under them.

use tollgate::{Policy, Quota};

use crate::{
    checks::{START, check, each_algorithm, remaining},
    support::{Fixture, policy},
};

const SECOND: u64 = 1_000_000;

fn change(policy: &Policy, quota: &str) {
    policy.set_quota(quota.parse::<Quota>().expect("valid"));
}

/// The same policies with another limit.
fn set_limit(policy: &Policy, limit: u64) {
    let of = each_algorithm(limit);
    let same = of.iter().find(|other| *other == policy).expect("one of them");
    policy.set_quota(same.quota());
}

pub(crate) async fn a_raised_limit_denies_nothing(fixture: Fixture) {
    fixture.set(START);
    for policy in &each_algorithm(10) {
        assert!(check(&fixture, policy, 6).await.is_allowed());
        set_limit(policy, 25);
        assert_eq!(remaining(&fixture, policy).await, 19);
        assert!(check(&fixture, policy, 19).await.is_allowed());
    }
}

pub(crate) async fn a_lowered_limit_acts_at_once(fixture: Fixture) {
    fixture.set(START);
    for policy in &each_algorithm(10) {
        assert!(check(&fixture, policy, 6).await.is_allowed());
        set_limit(policy, 8);
        assert_eq!(remaining(&fixture, policy).await, 2);
        set_limit(policy, 3);
        assert_eq!(remaining(&fixture, policy).await, 0);
        set_limit(policy, 10);
        assert_eq!(remaining(&fixture, policy).await, 4);
    }
}

/// And new units stay for the new window.
pub(crate) async fn a_wider_window_keeps_no_old_unit_longer(fixture: Fixture) {
    fixture.set(START);
    let log = policy("log", "10/s");
    assert!(check(&fixture, &log, 4).await.is_allowed());
    change(&log, "10/3s");
    fixture.set(START + 500_000);
    assert!(check(&fixture, &log, 5).await.is_allowed());
    for (time, left) in
        [(SECOND - 1, 1), (SECOND, 5), (3 * SECOND + 499_999, 5), (3 * SECOND + 500_000, 10)]
    {
        fixture.set(START + time);
        assert_eq!(remaining(&fixture, &log).await, left, "after {time} us");
    }
}

pub(crate) async fn a_narrower_window_lets_go_sooner(fixture: Fixture) {
    fixture.set(START);
    let log = policy("log", "10/3s");
    assert!(check(&fixture, &log, 4).await.is_allowed());
    change(&log, "10/s");
    fixture.set(START + SECOND - 1);
    assert_eq!(remaining(&fixture, &log).await, 6);
    fixture.set(START + SECOND);
    assert_eq!(remaining(&fixture, &log).await, 10);
}

pub(crate) async fn a_debt_ends_when_its_own_rule_has_paid_it(fixture: Fixture) {
    fixture.set(START);
    let bucket = policy("bucket", "4/s token-bucket(2)");
    assert!(check(&fixture, &bucket, 1).await.is_allowed());
    change(&bucket, "4/3s token-bucket(2)");
    let decision = check(&fixture, &bucket, 2).await;
    let wait =
        decision.outcomes().get(0).expect("an outcome").standing().retry_after().expect("refused");
    assert_eq!(wait.as_micros(), 250_000);
    fixture.set(START + 249_999);
    assert!(!check(&fixture, &bucket, 2).await.is_allowed());
    fixture.set(START + 250_000);
    assert!(check(&fixture, &bucket, 2).await.is_allowed());
}

pub(crate) async fn a_lowered_burst_waits_from_empty_at_most(fixture: Fixture) {
    fixture.set(START);
    let bucket = policy("bucket", "1/s token-bucket(100)");
    assert!(check(&fixture, &bucket, 100).await.is_allowed());
    change(&bucket, "1/s token-bucket(1)");
    let decision = check(&fixture, &bucket, 1).await;
    let wait =
        decision.outcomes().get(0).expect("an outcome").standing().retry_after().expect("refused");
    assert_eq!(wait.as_micros() as u64, 2 * SECOND);
    fixture.set(START + 2 * SECOND - 1);
    assert!(!check(&fixture, &bucket, 1).await.is_allowed());
    fixture.set(START + 2 * SECOND);
    assert!(check(&fixture, &bucket, 1).await.is_allowed());
}
