//! Quotas that change while keys have spent under them.

use std::time::Duration;

use plimsoll::{Decision, Policy, Quota};

use super::checks::{START, check, each_algorithm, remaining};
use crate::{Fixture, hold, most_in_any_window, policy};

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

pub async fn a_raised_limit_denies_nothing(fixture: Fixture) {
    fixture.set(START);
    for policy in &each_algorithm(10) {
        assert!(check(&fixture, policy, 6).await.is_allowed());
        set_limit(policy, 25);
        assert_eq!(remaining(&fixture, policy).await, 19);
        assert!(check(&fixture, policy, 19).await.is_allowed());
    }
}

pub async fn a_lowered_limit_acts_at_once(fixture: Fixture) {
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

/// Each unit returns as it would have under the limit of its own charge.
pub async fn a_limit_that_crosses_10_000_keeps_what_is_spent(fixture: Fixture) {
    let log = policy("log", "10000/min");
    // A bucket of 6 ms begins here, and one after 996 ms.
    let start = START / 6_000 * 6_000;
    fixture.set(start + 1);
    assert!(check(&fixture, &log, 4_000).await.is_allowed());
    change(&log, "60000/min");
    assert_eq!(remaining(&fixture, &log).await, 56_000);
    fixture.set(start + SECOND + 1);
    assert!(check(&fixture, &log, 5_000).await.is_allowed());
    change(&log, "10000/min");
    assert_eq!(remaining(&fixture, &log).await, 1_000);
    // In the bucket that is still open.
    fixture.set(start + SECOND + 2);
    let held = hold(&fixture.limiter, log.charge("alice", 1_000)).await;
    change(&log, "60000/min");
    assert_eq!(held.refund().await.expect("refunded"), 1_000);
    change(&log, "10000/min");
    for (time, left) in [
        (60 * SECOND, 1_000),
        (60 * SECOND + 1, 5_000),
        (61 * SECOND + 1_999, 5_000),
        (61 * SECOND + 2_000, 10_000),
    ] {
        fixture.set(start + time);
        assert_eq!(remaining(&fixture, &log).await, left, "after {time} us");
    }
}

/// And new units stay for the new window.
pub async fn a_wider_window_keeps_no_old_unit_longer(fixture: Fixture) {
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

pub async fn a_narrower_window_lets_go_sooner(fixture: Fixture) {
    fixture.set(START);
    let log = policy("log", "10/3s");
    assert!(check(&fixture, &log, 4).await.is_allowed());
    change(&log, "10/s");
    fixture.set(START + SECOND - 1);
    assert_eq!(remaining(&fixture, &log).await, 6);
    fixture.set(START + SECOND);
    assert_eq!(remaining(&fixture, &log).await, 10);
}

/// Records of two lives, and a window that is shorter than both.
pub async fn a_window_below_both_lives_lets_go_sooner(fixture: Fixture) {
    let log = policy("log", "10/30s");
    for second in 0..5 {
        fixture.set(START + second * SECOND);
        assert!(check(&fixture, &log, 1).await.is_allowed());
    }
    change(&log, "10/min");
    fixture.set(START + 5 * SECOND);
    assert!(check(&fixture, &log, 5).await.is_allowed());
    change(&log, "10/10s");
    // The third unit leaves 10 s after its charge.
    let Decision::Denied(denied) = check(&fixture, &log, 3).await else { panic!("0 are free") };
    assert_eq!(denied.retry_after(), Some(Duration::from_secs(7)));
    for (time, left) in [(10, 1), (11, 2), (12, 3), (13, 4), (14, 5), (15, 10)] {
        fixture.set(START + time * SECOND - 1);
        assert_eq!(remaining(&fixture, &log).await, if time < 15 { left - 1 } else { 5 });
        fixture.set(START + time * SECOND);
        assert_eq!(remaining(&fixture, &log).await, left, "after {time} s");
    }
}

/// A multiple of an hour, in microseconds.
const HOUR_START: u64 = 472_222 * 3_600 * SECOND;

/// Ten an hour, all spent at half past, then ten a minute. A store that took the units as spent at
/// the start of their hour would admit ten more at once.
pub async fn a_narrower_period_forgets_nothing(fixture: Fixture) {
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
pub async fn a_wider_period_counts_new_units_to_its_end(fixture: Fixture) {
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

/// A store that forgot the units of the first window at the second change would have 9 free under an hour.
pub async fn units_of_two_earlier_windows_leave_with_the_later_one(fixture: Fixture) {
    let start = HOUR_START + 10_500_000;
    fixture.set(start);
    let policy = policy("p", "10/s fixed-window");
    assert!(check(&fixture, &policy, 4).await.is_allowed());
    change(&policy, "10/min fixed-window");
    assert!(check(&fixture, &policy, 3).await.is_allowed());
    fixture.set(HOUR_START + 10_999_999);
    assert_eq!(remaining(&fixture, &policy).await, 3);
    // The first second is over.
    fixture.set(HOUR_START + 11 * SECOND);
    assert_eq!(remaining(&fixture, &policy).await, 7);
    // It counted at the last charge.
    change(&policy, "10/h fixed-window");
    assert_eq!(remaining(&fixture, &policy).await, 3);
    assert!(check(&fixture, &policy, 1).await.is_allowed());
    for (time, left) in
        [(60 * SECOND - 1, 2), (60 * SECOND, 9), (3_600 * SECOND - 1, 9), (3_600 * SECOND, 10)]
    {
        fixture.set(HOUR_START + time);
        assert_eq!(remaining(&fixture, &policy).await, left, "after {time} us");
    }
}

pub async fn many_windows_forget_nothing(fixture: Fixture) {
    for kind in ["fixed-window", "sliding-counter"] {
        fixture.set(HOUR_START + 1);
        let policy = policy(kind, &format!("100/h {kind}"));
        for number in 1..=15 {
            change(&policy, &format!("100/{}min {kind}", 60 * number));
            assert!(check(&fixture, &policy, 1).await.is_allowed());
            assert_eq!(remaining(&fixture, &policy).await, 100 - number, "{kind}");
        }
        // All leave within two of their own windows.
        fixture.set(HOUR_START + 30 * 3_600 * SECOND);
        assert_eq!(remaining(&fixture, &policy).await, 100, "{kind}");
    }
}

/// The units count until they leave. The refund gives back no units of later charges instead.
pub async fn a_charge_from_before_a_change_of_the_window_gives_back_nothing(fixture: Fixture) {
    for kind in ["fixed-window", "sliding-counter"] {
        fixture.set(HOUR_START + 30 * SECOND);
        let policy = policy(kind, &format!("10/min {kind}"));
        let first = hold(&fixture.limiter, policy.charge("alice", 4)).await;
        let second = hold(&fixture.limiter, policy.charge("alice", 3)).await;
        change(&policy, &format!("20/h {kind}"));
        // Before a charge under the new window, and after.
        assert_eq!(first.refund().await.expect("the store answers"), 0, "{kind}");
        let later = hold(&fixture.limiter, policy.charge("alice", 2)).await;
        assert_eq!(remaining(&fixture, &policy).await, 11, "{kind}");
        assert_eq!(second.refund().await.expect("the store answers"), 0, "{kind}");
        assert_eq!(later.refund().await.expect("the store answers"), 2, "{kind}");
        assert_eq!(remaining(&fixture, &policy).await, 13, "{kind}");
        fixture.set(HOUR_START + 120 * SECOND);
        assert_eq!(remaining(&fixture, &policy).await, 20, "{kind}");
    }
}

/// The bucket that is open at a change ends when the new quota has it end, if that is sooner. A store
/// that kept its old end would keep all units until 190 seconds have passed.
pub async fn an_open_bucket_ends_under_the_new_window(fixture: Fixture) {
    fixture.set(HOUR_START);
    let policy = policy("p", "10/100s sliding-buckets(1)");
    let start = HOUR_START;
    let charged = hold(&fixture.limiter, policy.charge("alice", 2)).await;
    assert!(check(&fixture, &policy, 4).await.is_allowed());
    change(&policy, "10/90s sliding-buckets(90)");
    // Also for the charge that follows in the same bucket.
    fixture.set(start + 500_000);
    assert!(check(&fixture, &policy, 1).await.is_allowed());
    fixture.set(start + 2 * SECOND);
    assert!(check(&fixture, &policy, 3).await.is_allowed());
    let decision = check(&fixture, &policy, 1).await;
    let wait =
        decision.outcomes().next().expect("an outcome").standing().retry_after.expect("refused");
    assert_eq!(wait.as_micros() as u64, 89 * SECOND);
    fixture.set(start + 91 * SECOND - 1);
    assert_eq!(charged.refund().await.expect("the store answers"), 2);
    for (time, left) in [(91 * SECOND - 1, 2), (91 * SECOND, 7), (93 * SECOND, 10)] {
        fixture.set(start + time);
        assert_eq!(remaining(&fixture, &policy).await, left, "after {time} us");
    }
}

/// The new window is the wider one: the open bucket ends at the last charge.
pub async fn an_open_bucket_ends_under_a_wider_window(fixture: Fixture) {
    fixture.set(HOUR_START);
    let policy = policy("p", "10/100s sliding-buckets(1)");
    assert!(check(&fixture, &policy, 6).await.is_allowed());
    change(&policy, "10/110s sliding-buckets(110)");
    // At 200 seconds if the window does not change.
    for (time, left) in [(100 * SECOND - 1, 4), (100 * SECOND, 10)] {
        fixture.set(HOUR_START + time);
        assert_eq!(remaining(&fixture, &policy).await, left, "after {time} us");
    }
    change(&policy, "10/100s sliding-buckets(1)");
    assert_eq!(remaining(&fixture, &policy).await, 4, "nothing was charged under the other window");
}

/// A store that finds a charge by the end of its bucket alone would refund units of another one.
pub async fn a_refund_after_an_open_bucket_has_ended_finds_its_own_units(fixture: Fixture) {
    fixture.set(HOUR_START);
    let policy = policy("p", "10/100s sliding-buckets(1)");
    let first = hold(&fixture.limiter, policy.charge("alice", 4)).await;
    change(&policy, "10/50s sliding-buckets(5)");
    fixture.set(HOUR_START + 10 * SECOND);
    assert!(check(&fixture, &policy, 1).await.is_allowed());
    // This bucket ends when the first one would have ended, and the first charge has left.
    fixture.set(HOUR_START + 95 * SECOND);
    let last = hold(&fixture.limiter, policy.charge("alice", 5)).await;
    assert_eq!(first.refund().await.expect("the store answers"), 0);
    assert_eq!(remaining(&fixture, &policy).await, 5);
    assert_eq!(last.refund().await.expect("the store answers"), 5);
}

/// The newest record stays in the bucket of the window under which it was charged, in a short and in a long
/// log, also when it is not the newest any more.
pub async fn a_refund_under_another_window_closes_no_bucket(fixture: Fixture) {
    let quota = "100/100s sliding-buckets(100)";
    for (charges, more) in [(2, 0), (2, 1), (60, 0), (60, 1)] {
        let policy = policy(&format!("p{charges}-{more}"), quota);
        fixture.set(HOUR_START);
        let first = hold(&fixture.limiter, policy.charge("alice", 1)).await;
        for second in 1..charges {
            fixture.set(HOUR_START + second * SECOND + 200_000);
            assert!(check(&fixture, &policy, 1).await.is_allowed());
        }
        let end = HOUR_START + charges * SECOND;
        change(&policy, "100/10000s sliding-buckets(100)");
        fixture.set(end - SECOND / 2);
        assert_eq!(first.refund().await.expect("the store answers"), 1);
        change(&policy, quota);
        fixture.set(end + SECOND / 2);
        assert!(check(&fixture, &policy, more).await.is_allowed());
        fixture.set(end + 100 * SECOND - 1);
        assert_eq!(remaining(&fixture, &policy).await, 100 - 1 - more, "{charges}, {more}");
        fixture.set(end + 100 * SECOND);
        assert_eq!(remaining(&fixture, &policy).await, 100 - more, "{charges}, {more}");
    }
}

/// A store whose period is gone with its last unit would see the units of the wider window in the
/// narrower one.
pub async fn a_period_refunded_to_nothing_forgets_nothing(fixture: Fixture) {
    for kind in ["fixed-window", "sliding-counter"] {
        for [old, new] in [["8/min", "5/86400s"], ["8/86400s", "5/min"]] {
            fixture.set(HOUR_START);
            let policy = policy(&format!("{kind}-{}", &new[2..]), &format!("{old} {kind}"));
            let first = hold(&fixture.limiter, policy.charge("alice", 8)).await;
            assert_eq!(first.refund().await.expect("the store answers"), 8);
            change(&policy, &format!("{new} {kind}"));
            assert_eq!(remaining(&fixture, &policy).await, 5, "{kind}");
            let second = hold(&fixture.limiter, policy.charge("alice", 5)).await;
            assert_eq!(remaining(&fixture, &policy).await, 0, "{kind}");
            assert_eq!(second.refund().await.expect("the store answers"), 5, "{kind}");
            assert_eq!(remaining(&fixture, &policy).await, 5, "{kind}");
            // Refunded once.
            change(&policy, &format!("{old} {kind}"));
            assert_eq!(remaining(&fixture, &policy).await, 8, "{kind}");
            assert!(check(&fixture, &policy, 8).await.is_allowed());
            assert!(!check(&fixture, &policy, 1).await.is_allowed());
        }
    }
}

/// A store that counted the time since the last charge at the new rate would have 9 left of 99.
pub async fn what_has_refilled_is_kept(fixture: Fixture) {
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

pub async fn a_faster_rate_acts_at_once(fixture: Fixture) {
    fixture.set(START);
    let bucket = policy("bucket", "1/s token-bucket(100)");
    assert!(check(&fixture, &bucket, 100).await.is_allowed());
    change(&bucket, "10/s token-bucket(100)");
    fixture.set(START + 5 * SECOND);
    assert_eq!(remaining(&fixture, &bucket).await, 50);
}

/// A store that cut the debt to the lower burst would have 3 free, then 30.
pub async fn a_burst_that_jumps_moves_no_debt(fixture: Fixture) {
    fixture.set(START);
    let bucket = policy("bucket", "10/s token-bucket(30)");
    assert!(check(&fixture, &bucket, 30).await.is_allowed());
    change(&bucket, "10/s token-bucket(3)");
    fixture.set(START + 1_500_000);
    assert_eq!(remaining(&fixture, &bucket).await, 0);
    change(&bucket, "10/s token-bucket(30)");
    assert_eq!(remaining(&fixture, &bucket).await, 15);
}

pub async fn a_debt_ends_when_its_own_rule_has_paid_it(fixture: Fixture) {
    fixture.set(START);
    let bucket = policy("bucket", "4/s token-bucket(2)");
    assert!(check(&fixture, &bucket, 1).await.is_allowed());
    change(&bucket, "4/3s token-bucket(2)");
    let decision = check(&fixture, &bucket, 2).await;
    let wait =
        decision.outcomes().next().expect("an outcome").standing().retry_after.expect("refused");
    assert_eq!(wait.as_micros(), 250_000);
    fixture.set(START + 249_999);
    assert!(!check(&fixture, &bucket, 2).await.is_allowed());
    fixture.set(START + 250_000);
    assert!(check(&fixture, &bucket, 2).await.is_allowed());
}

pub async fn a_lowered_burst_keeps_the_debt(fixture: Fixture) {
    fixture.set(START);
    let bucket = policy("bucket", "1/s token-bucket(100)");
    assert!(check(&fixture, &bucket, 100).await.is_allowed());
    change(&bucket, "1/s token-bucket(1)");
    let decision = check(&fixture, &bucket, 1).await;
    let wait =
        decision.outcomes().next().expect("an outcome").standing().retry_after.expect("refused");
    assert_eq!(wait.as_micros() as u64, 100 * SECOND);
    fixture.set(START + 100 * SECOND - 1);
    assert!(!check(&fixture, &bucket, 1).await.is_allowed());
    fixture.set(START + 100 * SECOND);
    assert!(check(&fixture, &bucket, 1).await.is_allowed());
}

/// A debt that an earlier quota allowed is no smaller after a forced charge, as far as a wait can tell:
/// the longest is twice the longest window.
pub async fn a_forced_charge_forgives_no_debt(fixture: Fixture) {
    const DAY: u64 = 86_400 * SECOND;
    for (rate, wait) in
        [("1/s token-bucket(1)", 100 * SECOND), ("1/400d token-bucket(1)", 800 * DAY)]
    {
        fixture.set(START);
        let bucket = policy("bucket", "100/s token-bucket(100)");
        fixture.limiter.reset(bucket.charge("alice", 0)).await.expect("an answer");
        let held = hold(&fixture.limiter, bucket.charge("alice", 100)).await;
        change(&bucket, rate);
        held.settle(101).await.expect("an answer");
        let peek = fixture.limiter.peek(bucket.charge("alice", 0)).await.expect("an answer");
        let standing = *peek.outcomes().next().expect("an outcome").standing();
        assert_eq!(standing.reset_after.as_micros() as u64, wait, "{rate}");
    }
}

/// An old instance with ten a minute beside a new one with ten in two seconds: no two seconds hold more
/// than ten, however the checks of the two follow one another.
pub async fn windows_that_alternate_add_nothing(fixture: Fixture) {
    let windows = ["10/min", "10/2s"];
    let policies = windows.map(|quota| policy("p", quota));
    let mut admitted = Vec::new();
    for step in 0..400_u64 {
        let time = START + step * 100_000;
        fixture.set(time);
        for policy in &policies {
            if check(&fixture, policy, 1).await.is_allowed() {
                admitted.push((time, 1));
            }
        }
    }
    let most = most_in_any_window(&admitted, 2 * SECOND);
    assert!(most <= 10, "{most} in two seconds");
    assert!(admitted.len() >= 190, "the looser quota is used: {}", admitted.len());
}
