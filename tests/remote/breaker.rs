//! Results of calls that the breaker counts as failures of the store.

use std::time::Duration;

use futures_util::future::join_all;
use plimsoll::{Resilience, store::Source};
use plimsoll_testing::policy;
use tokio::time::timeout;

use crate::{
    fallback::Bench,
    remote::{FOREIGN, Mood, NOT_TAKEN},
};

#[tokio::test(start_paused = true)]
async fn a_pause_counts_as_one_consecutive_failure() {
    let bench = Bench::new(1);
    let policy = policy("p", "1000000/h token-bucket(1000000)");
    bench.admitted(&policy, 200).await;
    for _ in 0..2 {
        bench.remote.set(Mood::Hangs);
        let paused = join_all((0..64).map(|_| bench.check(policy.charge("alice", 1)))).await;
        assert!(paused.iter().all(|decision| decision.source() == Source::Fallback));
        bench.remote.set(Mood::Well);
        for _ in 0..20 {
            let decision = bench.check(policy.charge("alice", 1)).await;
            assert_eq!(decision.source(), Source::Shared, "the pause is over");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn ten_rounds_of_failures_open_the_breaker() {
    let bench = Bench::new(1);
    let policy = policy("p", "1000000/h token-bucket(1000000)");
    bench.admitted(&policy, 2_000).await;
    bench.remote.set(Mood::Hangs);
    let before = bench.remote.calls();
    for _ in 0..20 {
        join_all((0..8).map(|_| bench.check(policy.charge("alice", 1)))).await;
    }
    // The first call of its round opens the breaker.
    assert_eq!(bench.remote.calls() - before, 10 * 8);
}

#[tokio::test(start_paused = true)]
async fn calls_abandoned_late_are_failures() {
    let bench = Bench::with(Resilience::default().deadline(Duration::from_millis(500)));
    let policy = policy("p", "1000/h");
    bench.remote.set(Mood::Hangs);
    for _ in 0..50 {
        let patience = Duration::from_millis(300);
        let _ = timeout(patience, bench.limiter.check(policy.charge("alice", 1))).await;
    }
    assert!((10..=13).contains(&bench.remote.calls()), "{}", bench.remote.calls());
}

#[tokio::test(start_paused = true)]
async fn calls_abandoned_early_do_not_count() {
    let bench = Bench::new(1);
    let policy = policy("p", "1000/h");
    bench.remote.set(Mood::Hangs);
    for _ in 0..50 {
        let patience = Duration::from_millis(30);
        let _ = timeout(patience, bench.limiter.check(policy.charge("alice", 1))).await;
    }
    assert_eq!(bench.remote.calls(), 50);
}

#[tokio::test(start_paused = true)]
async fn requests_that_are_not_sent_do_not_count() {
    let bench = Bench::new(1);
    let policy = policy("p", "1000000/min");
    bench.remote.set(Mood::Hangs);
    for _ in 0..50 {
        for _ in 0..3 {
            let _ = bench.limiter.check(policy.charge(NOT_TAKEN, 1)).await;
        }
        let _ = bench.check(policy.charge("alice", 0)).await;
    }
    assert_eq!(bench.remote.calls(), 10, "nothing of it passes for a success");
}

#[tokio::test(start_paused = true)]
async fn a_foreign_value_under_a_key_is_no_failure() {
    let bench = Bench::new(1);
    let policy = policy("p", "1000000/min");
    for _ in 0..50 {
        let decision = bench.check(policy.charge(FOREIGN, 1)).await;
        assert_eq!(decision.source(), Source::Fallback);
    }
    let decision = bench.check(policy.charge("alice", 1)).await;
    assert_eq!(decision.source(), Source::Shared);
}

#[tokio::test(start_paused = true)]
async fn calls_that_are_refused_have_no_latency() {
    let bench = Bench::with(Resilience::default().without_breaker());
    let policy = policy("p", "1000/h");
    for (mood, has_latency) in [(Mood::Down, false), (Mood::Hangs, true)] {
        bench.remote.set(mood);
        for _ in 0..50 {
            let _ = bench.check(policy.charge("alice", 1)).await;
        }
        let latency = bench.limiter.status().latency;
        assert_eq!(latency.is_some_and(|it| it > Duration::from_millis(40)), has_latency);
    }
}
