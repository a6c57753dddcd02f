//! Quotas that change while keys have spent under them.

use tollgate::{Policy, Quota};

use crate::{
    checks::{START, check, each_algorithm, remaining},
    support::{Fixture, hold, policy},
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

/// A multiple of an hour, in microseconds.
const HOUR_START: u64 = 472_222 * 3_600 * SECOND;

/// Ten an hour, all spent at half past, then ten a minute. A store that took the units as spent at
/// the start of their hour would admit ten more at once.
pub(crate) async fn a_narrower_period_forgets_nothing(fixture: Fixture) {
    let half_past = HOUR_START + 30 * 60 * SECOND;
    // The minute in which they were spent ends; for a counter the next one fades it out.
    for (kind, free) in [("fixed-window", [0, 10, 10, 10]), ("sliding-counter", [0, 0, 5, 10])] {
        let policy = policy(kind, &format!("10/h {kind}"));
        fixture.set(half_past);
        assert!(check(&fixture, &policy, 10).await.is_allowed());
        change(&policy, &format!("10/min {kind}"));
        for (time, free) in [0, 60, 90, 120].into_iter().zip(free) {
            fixture.set(half_past + time * SECOND);
            assert_eq!(remaining(&fixture, &policy).await, free, "{kind} after {time} s");
        }
    }
}

/// Units spent under the wider window stay for it, also when the old units leave sooner. A store that
/// counted both in the old minute would have ten free after it, and admit 29 in an hour.
pub(crate) async fn a_wider_period_counts_new_units_to_its_end(fixture: Fixture) {
    for (kind, later) in [("fixed-window", [1, 10]), ("sliding-counter", [1, 1])] {
        let policy = policy(kind, &format!("10/min {kind}"));
        fixture.set(HOUR_START + 50 * SECOND);
        assert!(check(&fixture, &policy, 1).await.is_allowed());
        change(&policy, &format!("10/h {kind}"));
        fixture.set(HOUR_START + 55 * SECOND);
        assert!(check(&fixture, &policy, 9).await.is_allowed());
        assert_eq!(remaining(&fixture, &policy).await, 0, "{kind}");
        for (time, left) in [(120, later[0]), (3_600, later[1])] {
            fixture.set(HOUR_START + time * SECOND);
            assert_eq!(remaining(&fixture, &policy).await, left, "{kind} after {time} s");
        }
    }
}

/// A store that kept one period for all units would let them leave together.
pub(crate) async fn units_of_two_earlier_windows_leave_apart(fixture: Fixture) {
    let start = HOUR_START + 10_500_000;
    fixture.set(start);
    let policy = policy("p", "10/s fixed-window");
    assert!(check(&fixture, &policy, 4).await.is_allowed());
    change(&policy, "10/min fixed-window");
    assert!(check(&fixture, &policy, 3).await.is_allowed());
    change(&policy, "10/h fixed-window");
    assert!(check(&fixture, &policy, 1).await.is_allowed());
    for (time, left) in [
        (10_999_999, 2),
        (11 * SECOND, 6),
        (60 * SECOND - 1, 6),
        (60 * SECOND, 9),
        (3_600 * SECOND - 1, 9),
        (3_600 * SECOND, 10),
    ] {
        fixture.set(HOUR_START + time);
        assert_eq!(remaining(&fixture, &policy).await, left, "after {time} us");
    }
}

/// More windows than a key keeps apart.
pub(crate) async fn many_windows_forget_nothing(fixture: Fixture) {
    for kind in ["fixed-window", "sliding-counter"] {
        fixture.set(HOUR_START + 1);
        let policy = policy(kind, &format!("100/h {kind}"));
        for number in 1..=15 {
            change(&policy, &format!("100/{}min {kind}", 60 * number));
            assert!(check(&fixture, &policy, 1).await.is_allowed());
            assert_eq!(remaining(&fixture, &policy).await, 100 - number, "{kind}");
        }
        // Every group leaves within two of its own windows.
        fixture.set(HOUR_START + 30 * 3_600 * SECOND);
        assert_eq!(remaining(&fixture, &policy).await, 100, "{kind}");
    }
}

pub(crate) async fn a_carried_unit_can_be_refunded(fixture: Fixture) {
    for kind in ["fixed-window", "sliding-counter"] {
        fixture.set(HOUR_START + 30 * SECOND);
        let policy = policy(kind, &format!("10/min {kind}"));
        let first = hold(&fixture.limiter, policy.charge("alice", 4)).await;
        let second = hold(&fixture.limiter, policy.charge("alice", 3)).await;
        change(&policy, &format!("10/h {kind}"));
        // Before a charge under the new window, and after.
        assert_eq!(first.refund().await.expect("the store answers"), 4, "{kind}");
        assert!(check(&fixture, &policy, 2).await.is_allowed());
        assert_eq!(remaining(&fixture, &policy).await, 5, "{kind}");
        assert_eq!(second.refund().await.expect("the store answers"), 3, "{kind}");
        assert_eq!(remaining(&fixture, &policy).await, 8, "{kind}");
    }
}

/// A store that counted the time since the last charge at the new rate would have 9 left of 99.
pub(crate) async fn what_has_refilled_is_kept(fixture: Fixture) {
    fixture.set(START);
    let bucket = policy("bucket", "10/s token-bucket(100)");
    assert!(check(&fixture, &bucket, 100).await.is_allowed());
    fixture.set(START + 9_900_000);
    assert_eq!(remaining(&fixture, &bucket).await, 99);
    change(&bucket, "1/s token-bucket(100)");
    assert_eq!(remaining(&fixture, &bucket).await, 99);
    // From the next charge on the new rate counts.
    assert!(check(&fixture, &bucket, 9).await.is_allowed());
    fixture.set(START + 11_900_000);
    assert_eq!(remaining(&fixture, &bucket).await, 92);
}

pub(crate) async fn a_faster_rate_acts_at_once(fixture: Fixture) {
    fixture.set(START);
    let bucket = policy("bucket", "1/s token-bucket(100)");
    assert!(check(&fixture, &bucket, 100).await.is_allowed());
    change(&bucket, "10/s token-bucket(100)");
    fixture.set(START + 5 * SECOND);
    assert_eq!(remaining(&fixture, &bucket).await, 50);
}

/// A store that cut the debt to the lower burst would have 3 free, then 30.
pub(crate) async fn a_burst_that_jumps_moves_no_debt(fixture: Fixture) {
    fixture.set(START);
    let bucket = policy("bucket", "10/s token-bucket(30)");
    assert!(check(&fixture, &bucket, 30).await.is_allowed());
    change(&bucket, "10/s token-bucket(3)");
    fixture.set(START + 1_500_000);
    assert_eq!(remaining(&fixture, &bucket).await, 0);
    change(&bucket, "10/s token-bucket(30)");
    assert_eq!(remaining(&fixture, &bucket).await, 15);
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

pub(crate) async fn a_lowered_burst_keeps_the_debt(fixture: Fixture) {
    fixture.set(START);
    let bucket = policy("bucket", "1/s token-bucket(100)");
    assert!(check(&fixture, &bucket, 100).await.is_allowed());
    change(&bucket, "1/s token-bucket(1)");
    let decision = check(&fixture, &bucket, 1).await;
    let wait =
        decision.outcomes().get(0).expect("an outcome").standing().retry_after().expect("refused");
    assert_eq!(wait.as_micros() as u64, 100 * SECOND);
    fixture.set(START + 100 * SECOND - 1);
    assert!(!check(&fixture, &bucket, 1).await.is_allowed());
    fixture.set(START + 100 * SECOND);
    assert!(check(&fixture, &bucket, 1).await.is_allowed());
}
