//! Refund, settle, reset.

use std::time::Duration;

use plimsoll::{Algorithm, Decision, Quota, policy::Charges};

use super::checks::{START, check, each_algorithm, remaining};
use crate::{Fixture, hold, micros, policy};

const SECOND: u64 = 1_000_000;

pub async fn a_refund_gives_back_what_still_weighs(fixture: Fixture) {
    fixture.set(START);
    for policy in &each_algorithm(10) {
        let slot = hold(&fixture.limiter, policy.charge("alice", 7)).await;
        assert_eq!(remaining(&fixture, policy).await, 3);
        assert_eq!(slot.refund().await.expect("an answer"), 7);
        assert_eq!(remaining(&fixture, policy).await, 10);
    }
}

pub async fn a_late_refund_gives_nothing(fixture: Fixture) {
    for (index, policy) in each_algorithm(10).iter().enumerate() {
        let start = START + index as u64 * 100 * SECOND;
        fixture.set(start);
        let slot = hold(&fixture.limiter, policy.charge("alice", 7)).await;
        // Under buckets and the counter, the units may count for almost two windows.
        fixture.set(start + 2 * SECOND);
        assert!(check(&fixture, policy, 5).await.is_allowed());
        assert_eq!(slot.refund().await.expect("an answer"), 0, "{policy:?}");
        assert_eq!(remaining(&fixture, policy).await, 5);
    }
}

/// The charge and the later ones are in one period of one window, and a counter has them in two parts. In a
/// bucket, the units of its debt come back.
pub async fn a_refund_takes_nothing_of_charges_after_the_window_changed_and_changed_back(
    fixture: Fixture,
) {
    let policies = each_algorithm(10)
        .into_iter()
        .filter(|policy| !matches!(policy.quota().algorithm(), Algorithm::TokenBucket { .. }));
    for (index, policy) in policies.enumerate() {
        let [long, short] = [(10, 10), (100, 1)].map(|(limit, seconds)| {
            let algorithm = policy.quota().algorithm();
            let quota = Quota::new(limit, Duration::from_secs(seconds), Algorithm::SlidingLog)
                .expect("in bounds");
            quota.with_algorithm(algorithm).expect("in bounds")
        });
        // The first microsecond of a long period.
        let start = START - START % (10 * SECOND) + (index as u64 + 1) * 100 * SECOND;
        fixture.set(start);
        policy.set_quota(long);
        let before = hold(&fixture.limiter, policy.charge("alice", 6)).await;
        fixture.set(start + SECOND);
        policy.set_quota(short);
        assert!(check(&fixture, &policy, 1).await.is_allowed());
        // All of these units count no longer, because the short window has passed.
        fixture.set(start + 4 * SECOND);
        policy.set_quota(long);
        let after = hold(&fixture.limiter, policy.charge("alice", 9)).await;
        assert_eq!(before.refund().await.expect("an answer"), 0, "{policy:?}");
        let free = remaining(&fixture, &policy).await;
        assert!(free <= 1, "{policy:?}: {free} are free, and 9 of 10 were charged");
        assert_eq!(after.refund().await.expect("an answer"), 9, "{policy:?}");
        assert_eq!(remaining(&fixture, &policy).await, free + 9, "{policy:?}");
    }
}

/// The units of the long window have left, and its period has not passed.
pub async fn a_refund_finds_charges_of_later_periods_after_a_change(fixture: Fixture) {
    for (index, policy) in each_algorithm(10).iter().enumerate() {
        let [long, short] = [100, 10].map(|seconds| {
            let algorithm = policy.quota().algorithm();
            Quota::new(10, Duration::from_secs(seconds), algorithm).expect("in bounds")
        });
        let start = START - START % (100 * SECOND) + (index as u64 + 1) * 1_000 * SECOND;
        fixture.set(start);
        policy.set_quota(long);
        assert!(check(&fixture, policy, 1).await.is_allowed());
        policy.set_quota(short);
        for seconds in [1, 25, 26, 47, 52] {
            fixture.set(start + seconds * SECOND);
            let free = remaining(&fixture, policy).await;
            let held = hold(&fixture.limiter, policy.charge("alice", 4)).await;
            assert_eq!(held.refund().await.expect("an answer"), 4, "{policy:?} after {seconds} s");
            assert_eq!(remaining(&fixture, policy).await, free, "{policy:?} after {seconds} s");
        }
    }
}

/// Both charges of the long window were made at the same time, with a change of the window between them.
pub async fn a_refund_tells_changes_within_one_microsecond_apart(fixture: Fixture) {
    for (index, name) in ["fixed-window", "sliding-counter"].iter().enumerate() {
        let [short, long] = [format!("10/1s {name}"), format!("10/10s {name}")];
        let start = START - START % (10 * SECOND) + (index as u64 + 1) * 100 * SECOND;
        fixture.set(start);
        let policy = policy(name, &short);
        let mut held = Vec::new();
        for (quota, units) in [(&short, 1), (&long, 3), (&short, 1), (&long, 4)] {
            policy.set_quota(quota.parse().expect("a quota"));
            held.push(hold(&fixture.limiter, policy.charge("alice", units)).await);
        }
        assert_eq!(held.swap_remove(1).refund().await.expect("an answer"), 0);
        // The units of the charges before the last change have left, by the short window.
        fixture.set(start + 4 * SECOND);
        assert_eq!(remaining(&fixture, &policy).await, 10 - 4, "{name}");
        assert_eq!(held.swap_remove(1).refund().await.expect("an answer"), 4);
    }
}

pub async fn a_log_gives_back_the_very_request(fixture: Fixture) {
    let log = policy("log", "10/s");
    fixture.set(START);
    let first = hold(&fixture.limiter, log.charge("alice", 4)).await;
    fixture.set(START + 500_000);
    let second = hold(&fixture.limiter, log.charge("alice", 6)).await;
    assert_eq!(second.refund().await.expect("an answer"), 6);
    assert_eq!(remaining(&fixture, &log).await, 6);
    fixture.set(START + SECOND - 1);
    assert_eq!(remaining(&fixture, &log).await, 6);
    fixture.set(START + SECOND);
    assert_eq!(remaining(&fixture, &log).await, 10);
    assert_eq!(first.refund().await.expect("an answer"), 0);
}

pub async fn a_bucket_gives_back_what_is_unpaid(fixture: Fixture) {
    let bucket = policy("bucket", "1/s token-bucket(10)");
    fixture.set(START);
    let first = hold(&fixture.limiter, bucket.charge("alice", 4)).await;
    let second = hold(&fixture.limiter, bucket.charge("alice", 6)).await;
    // 1.5 units of the first charge are left, and all units of the second one.
    fixture.set(START + 2 * SECOND + 500_000);
    assert_eq!(first.refund().await.expect("an answer"), 1);
    assert_eq!(second.refund().await.expect("an answer"), 6);
    assert_eq!(remaining(&fixture, &bucket).await, 9);
}

pub async fn a_counter_gives_back_to_the_period_before(fixture: Fixture) {
    let counter = policy("counter", "10/s sliding-counter");
    fixture.set(START);
    let slot = hold(&fixture.limiter, counter.charge("alice", 8)).await;
    fixture.set(START + SECOND + 500_000);
    assert_eq!(remaining(&fixture, &counter).await, 6);
    assert!(check(&fixture, &counter, 1).await.is_allowed());
    assert_eq!(slot.refund().await.expect("an answer"), 8);
    assert_eq!(remaining(&fixture, &counter).await, 9);
}

pub async fn settle_down(fixture: Fixture) {
    fixture.set(START);
    for policy in &each_algorithm(10) {
        let slot = hold(&fixture.limiter, policy.charge("alice", 7)).await;
        slot.settle(2).await.expect("an answer");
        assert_eq!(remaining(&fixture, policy).await, 8);
        let slot = hold(&fixture.limiter, policy.charge("alice", 7)).await;
        slot.settle(7).await.expect("an answer");
        assert_eq!(remaining(&fixture, policy).await, 1);
    }
}

pub async fn settle_up(fixture: Fixture) {
    fixture.set(START);
    let policies = each_algorithm(10);
    let charges: Charges<'_> = policies.iter().map(|policy| policy.charge("alice", 3)).collect();
    let decision = fixture.limiter.check(charges).await.expect("an answer");
    let Decision::Allowed(allowed) = decision else { panic!("10 are free") };
    fixture.limiter.hold(allowed.into_receipt()).settle(8).await.expect("an answer");
    for policy in &policies {
        assert_eq!(remaining(&fixture, policy).await, 2);
    }
}

/// The debt of a bucket is at most a burst and a limit. Of 3 units 1 is refunded, then 2 are charged by
/// the shadow: a debt of 4, of which nothing is cut off.
pub async fn a_settlement_refunds_before_it_charges(fixture: Fixture) {
    fixture.set(START);
    let bucket = policy("bucket", "1/s token-bucket(3)");
    let charges = [bucket.charge("alice", 3), bucket.charge("alice", 0).shadow()];
    let decision = fixture.limiter.check(charges).await.expect("an answer");
    let Decision::Allowed(allowed) = decision else { panic!("3 are free") };
    fixture.limiter.hold(allowed.into_receipt()).settle(2).await.expect("an answer");
    let decision = check(&fixture, &bucket, 0).await;
    let standing = decision.outcomes().next().expect("an outcome").standing();
    assert_eq!(standing.reset_after.as_micros() as u64, 4 * SECOND);
}

/// A settlement may exceed the limit. Its units leave later, and nothing overflows.
pub async fn settle_far_beyond_the_limit(fixture: Fixture) {
    for units in [15, u64::MAX] {
        fixture.set(START);
        for policy in &each_algorithm(10) {
            fixture.limiter.reset(policy.charge("alice", 0)).await.expect("an answer");
            let slot = hold(&fixture.limiter, policy.charge("alice", 3)).await;
            slot.settle(units).await.expect("an answer");
            assert_eq!(remaining(&fixture, policy).await, 0);
            let decision = check(&fixture, policy, 10).await;
            let wait = decision
                .outcomes()
                .next()
                .expect("an outcome")
                .standing()
                .retry_after
                .expect("a wait");
            assert!(wait.as_micros() as u64 <= 2 * SECOND, "{policy:?} waits {wait:?}");
            fixture.set(START + wait.as_micros() as u64 - 1);
            assert!(!check(&fixture, policy, 10).await.is_allowed());
            fixture.set(START + wait.as_micros() as u64);
            assert!(check(&fixture, policy, 10).await.is_allowed());
            fixture.set(START);
        }
    }
}

pub async fn a_kept_reservation_stays_charged(fixture: Fixture) {
    fixture.set(START);
    for policy in &each_algorithm(10) {
        drop(hold(&fixture.limiter, policy.charge("alice", 7)).await);
        assert_eq!(remaining(&fixture, policy).await, 3);
    }
}

pub async fn reset_forgets(fixture: Fixture) {
    fixture.set(START);
    for policy in &each_algorithm(10) {
        assert!(check(&fixture, policy, 10).await.is_allowed());
        let other = policy.charge("bob", 4);
        assert!(fixture.limiter.check(other).await.expect("an answer").is_allowed());
        fixture.limiter.reset(policy.charge("alice", 0)).await.expect("an answer");
        assert_eq!(remaining(&fixture, policy).await, 10);
        let other = fixture.limiter.peek(policy.charge("bob", 0)).await.expect("an answer");
        assert_eq!(other.outcomes().next().expect("an outcome").standing().remaining, 6);
        assert_eq!(policy.quota().limit(), Quota::per_second(10).limit());
    }
}

/// Nothing is refunded of a log, and elsewhere no more than the charge.
pub async fn a_refund_from_before_a_reset_gives_back_at_most_its_charge(fixture: Fixture) {
    for policy in &each_algorithm(10) {
        fixture.set(START);
        let before = hold(&fixture.limiter, policy.charge("alice", 3)).await;
        fixture.limiter.reset(policy.charge("alice", 0)).await.expect("an answer");
        fixture.set(START + 1);
        assert!(check(&fixture, policy, 5).await.is_allowed());
        let given = before.refund().await.expect("an answer");
        let most = match policy.quota().algorithm() {
            Algorithm::SlidingLog | Algorithm::SlidingBuckets(_) => 0,
            _ => 3,
        };
        assert!(given <= most, "{given} of {most} units of {policy:?}");
        assert_eq!(remaining(&fixture, policy).await, 5 + given);
    }
}

/// A refunded charge leaves its record. From 10,000 records on, a log has times of 10,000 a window: here of
/// 100 us.
pub async fn a_log_of_10_000_records_rounds_times_up(fixture: Fixture) {
    let start = START / 100 * 100;
    let log = policy("log", "10/s");
    for number in 0..9_999 {
        fixture.set(start + number);
        let slot = hold(&fixture.limiter, log.charge("alice", 10)).await;
        assert_eq!(slot.refund().await.expect("an answer"), 10);
    }
    // The last exact time, and then two times at one edge.
    fixture.set(start + 10_001);
    assert!(check(&fixture, &log, 1).await.is_allowed());
    fixture.set(start + 10_002);
    assert!(check(&fixture, &log, 2).await.is_allowed());
    let second = hold(&fixture.limiter, log.charge("alice", 3)).await;
    fixture.set(start + 10_099);
    assert!(check(&fixture, &log, 4).await.is_allowed());
    let Decision::Denied(denied) = check(&fixture, &log, 2).await else { panic!("0 are free") };
    assert_eq!(denied.retry_after().map(micros), Some(SECOND + 1));
    assert_eq!(second.refund().await.expect("an answer"), 3);
    assert_eq!(remaining(&fixture, &log).await, 3);
    for (time, left) in
        [(SECOND + 10_000, 3), (SECOND + 10_001, 4), (SECOND + 10_099, 4), (SECOND + 10_100, 10)]
    {
        fixture.set(start + time);
        assert_eq!(remaining(&fixture, &log).await, left, "after {time} us");
    }
    // Times are exact again.
    fixture.set(start + SECOND + 10_103);
    assert!(check(&fixture, &log, 10).await.is_allowed());
    fixture.set(start + 2 * SECOND + 10_102);
    assert_eq!(remaining(&fixture, &log).await, 0);
    fixture.set(start + 2 * SECOND + 10_103);
    assert_eq!(remaining(&fixture, &log).await, 10);
}
