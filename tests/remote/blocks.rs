//! Blocks and penalties behind the stages: the deny cache, and the fallback while the store is down.

use std::time::Duration;

use plimsoll::{Decision, Limiter, Resilience, clock::ManualClock, store::Source};
use plimsoll_testing::policy;

use crate::{
    deny_cache::{START, cached},
    fallback::Bench,
    remote::Mood,
};

const MINUTE: Duration = Duration::from_secs(60);

async fn refused(limiter: &Limiter, charge: plimsoll::Charge<'_>) -> (Duration, Source) {
    let decision = limiter.check(charge).await.expect("an answer");
    let source = decision.source();
    let Decision::Denied(denied) = decision else { panic!("{decision:?}") };
    (denied.retry_after().expect("a wait"), source)
}

#[tokio::test]
async fn a_blocked_key_costs_the_store_a_call_each_second() {
    for quota in ["10/s", "10/s token-bucket(1)", "10/s token-bucket(7)", "10/min fixed-window"] {
        let clock = ManualClock::at(START);
        let (limiter, remote) = cached(&clock);
        let policy = policy("p", quota);
        limiter.block(policy.charge("alice", 1), MINUTE).await.expect("an answer");
        let calls = remote.calls();
        for time in 0..60_u64 {
            clock.set(START + time * 100_000);
            let rest = MINUTE - Duration::from_millis(100 * time);
            let (wait, _) = refused(&limiter, policy.charge("alice", 1)).await;
            assert_eq!(wait, rest, "{quota}");
        }
        assert_eq!(remote.calls() - calls, 6, "{quota}");
        clock.set(START + 60_000_000);
        let decision = limiter.check(policy.charge("alice", 1)).await.expect("an answer");
        assert!(decision.is_allowed());
    }
}

/// A block and its end act at once in this process, and in another one when its cached denial expires.
#[tokio::test]
async fn a_block_and_its_end_show_in_all_processes() {
    let clock = ManualClock::at(START);
    let (here, remote) = cached(&clock);
    let there = Limiter::with_resilience(remote, Resilience::default().clock(clock.clone()));
    let policy = policy("p", "10/s");
    let charge = || policy.charge("alice", 1);
    for limiter in [&here, &there] {
        assert!(limiter.check(charge()).await.expect("an answer").is_allowed());
    }
    here.block(charge(), MINUTE).await.expect("an answer");
    for limiter in [&here, &there] {
        assert_eq!(refused(limiter, charge()).await, (MINUTE, Source::Shared));
        assert_eq!(refused(limiter, charge()).await, (MINUTE, Source::Cache));
    }
    here.unblock(charge()).await.expect("an answer");
    assert!(here.check(charge()).await.expect("an answer").is_allowed());
    clock.advance(Duration::from_micros(999_999));
    assert_eq!(refused(&there, charge()).await.1, Source::Cache);
    clock.advance(Duration::from_micros(1));
    assert!(there.check(charge()).await.expect("an answer").is_allowed());
}

#[tokio::test(start_paused = true)]
async fn the_fallback_knows_the_blocks_of_this_process() {
    for instances in [1, 4] {
        let bench = Bench::new(instances);
        let policy = policy("p", "100/s");
        let charge = || policy.charge("alice", 1);
        bench.limiter.block(charge(), MINUTE).await.expect("an answer");
        bench.remote.set(Mood::Down);
        bench.pass(Duration::from_secs(10)).await;
        let rest = Duration::from_secs(50);
        assert_eq!(refused(&bench.limiter, charge()).await, (rest, Source::Fallback));
        assert!(bench.check(policy.charge("bob", 1)).await.is_allowed());
        bench.limiter.unblock(charge()).await.expect_err("the store is down");
        assert!(bench.check(charge()).await.is_allowed(), "lifted in this process");
    }
}

/// The error says that the store does not have it.
#[tokio::test(start_paused = true)]
async fn a_block_that_fails_is_one_of_this_process() {
    let bench = Bench::new(1);
    let policy = policy("p", "100/s");
    bench.remote.set(Mood::Down);
    let charge = || policy.charge("alice", 1);
    bench.limiter.block(charge(), MINUTE).await.expect_err("the store is down");
    assert_eq!(refused(&bench.limiter, charge()).await.1, Source::Fallback);
    bench.heal(&policy).await;
    let decision = bench.check(charge()).await;
    assert!(decision.is_allowed() && decision.source() == Source::Shared, "{decision:?}");
}

#[tokio::test(start_paused = true)]
async fn a_penalty_during_an_outage_is_charged_to_the_store_later() {
    let bench = Bench::new(1);
    let policy = policy("p", "100/h");
    bench.remote.set(Mood::Down);
    let charged = bench.limiter.penalize(policy.charge("alice", 130)).await.expect("it falls back");
    assert_eq!(charged.remaining(), Some(0));
    assert_eq!(charged.into_receipt().source, Source::Fallback);
    bench.heal(&policy).await;
    assert_eq!(bench.left(&policy, "alice").await, 0);
    assert_eq!(bench.left(&policy, "bob").await, 100);
}
