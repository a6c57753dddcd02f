//! The units that the fallback admits are charged to the store at most once, and are not lost.

use std::time::Duration;

use plimsoll::{
    OnFailure, Resilience, error::Effect, limiter::Reserved, memory::MemoryConfig, store::Source,
};
use plimsoll_testing::policy;
use tokio::{
    runtime::{Builder, Runtime},
    task::yield_now,
};

use crate::{
    fallback::Bench,
    remote::{FOREIGN, Mood},
};

/// No breaker, so that each test says when the store is asked.
fn without_breaker() -> Bench {
    Bench::with(Resilience::default().without_breaker().without_deny_cache())
}

async fn let_tasks_run() {
    for _ in 0..200 {
        yield_now().await;
    }
}

/// The charge of a key is sent once. If it fails, its units are not charged, and the other keys wait.
#[tokio::test(start_paused = true)]
async fn a_charge_that_fails_is_not_repeated() {
    const KEYS: u64 = 900;
    let bench = without_breaker();
    let policy = policy("p", "10/h");
    bench.remote.set(Mood::Down);
    for key in 0..KEYS {
        let _ = bench.check(policy.charge(key, 3)).await;
    }
    for _ in 0..3 {
        bench.remote.set(Mood::Well);
        assert_eq!(bench.check(policy.charge("probe", 0)).await.source(), Source::Shared);
        bench.remote.set(Mood::Down);
        let calls = bench.remote.calls();
        let_tasks_run().await;
        bench.pass(Duration::from_secs(5)).await;
        let_tasks_run().await;
        assert!((1..=16).contains(&(bench.remote.calls() - calls)), "it ends with a failure");
    }
    bench.remote.set(Mood::Well);
    let _ = bench.check(policy.charge("probe", 0)).await;
    for _ in 0..10 {
        let_tasks_run().await;
    }
    let mut lost = 0;
    for key in 0..KEYS {
        let peek = bench.limiter.peek(policy.charge(key, 0)).await.expect("decided");
        match peek.outcomes().next().expect("an outcome").standing().remaining {
            10 => lost += 1,
            left => assert_eq!(left, 7, "{key}"),
        }
    }
    assert!((3..=48).contains(&lost), "{lost} keys");
    let calls = bench.remote.calls();
    bench.pass(Duration::from_secs(5)).await;
    let_tasks_run().await;
    assert_eq!(bench.remote.calls(), calls, "it has ended");
}

#[tokio::test(start_paused = true)]
async fn a_refused_entry_delays_no_other() {
    let bench = without_breaker();
    let policy = policy("p", "10/h");
    bench.remote.set(Mood::Down);
    for key in 0..200_u64 {
        let _ = bench.check(policy.charge(key, 3)).await;
        let _ = bench.check(policy.charge(FOREIGN, 0)).await;
    }
    let _ = bench.check(policy.charge(FOREIGN, 4)).await;
    bench.remote.set(Mood::Well);
    let _ = bench.check(policy.charge("probe", 0)).await;
    let calls = bench.remote.calls();
    let_tasks_run().await;
    assert_eq!(bench.remote.calls() - calls, 201, "each is tried once");
    for key in 0..200_u64 {
        let peek = bench.limiter.peek(policy.charge(key, 0)).await.expect("decided");
        assert_eq!(peek.outcomes().next().expect("an outcome").standing().remaining, 7);
    }
    let calls = bench.remote.calls();
    bench.pass(Duration::from_secs(5)).await;
    let_tasks_run().await;
    assert_eq!(bench.remote.calls(), calls, "and never again");
}

#[tokio::test(start_paused = true)]
async fn units_with_an_unknown_effect_are_not_charged_again() {
    let bench = without_breaker();
    let policy = policy("p", "100/h");
    let held = bench.hold(policy.charge("alice", 1)).await;
    bench.remote.set(Mood::Mute);
    let error = held.settle(11).await.expect_err("its effect is unknown");
    assert!(error.effect() != Effect::None, "{error}");
    // A check without an answer is admitted by the fallback.
    let decision = bench.check(policy.charge("bob", 5)).await;
    assert!(decision.is_allowed() && decision.source() == Source::Fallback);
    bench.heal(&policy).await;
    assert_eq!(bench.left(&policy, "alice").await, 89);
    assert_eq!(bench.left(&policy, "bob").await, 95);
}

#[tokio::test(start_paused = true)]
async fn a_settlement_without_effect_is_replayed() {
    let bench = without_breaker();
    let policy = policy("p", "100/h");
    let held = bench.hold(policy.charge("alice", 1)).await;
    bench.remote.set(Mood::Down);
    held.settle(11).await.expect("in the backlog");
    bench.heal(&policy).await;
    assert_eq!(bench.left(&policy, "alice").await, 89);
}

/// One charge of a check has units to refund, which an outage prevents, and another one more to pay.
#[tokio::test(start_paused = true)]
async fn a_refund_that_fails_does_not_keep_the_difference_of_another_charge_from_the_backlog() {
    let bench = without_breaker();
    let (small, large) = (policy("small", "100/h"), policy("large", "100/h"));
    let charges = [small.charge("alice", 1), large.charge("alice", 20)];
    let Ok(Reserved::Held(held)) = bench.limiter.reserve(charges).await else { panic!("not held") };
    bench.remote.set(Mood::Down);
    held.settle(11).await.expect_err("the rest of the large one cannot be refunded");
    bench.heal(&small).await;
    assert_eq!((bench.left(&small, "alice").await, bench.left(&large, "alice").await), (89, 80));
}

/// A settlement is charged in full, also if it exceeds the share of an instance.
#[tokio::test(start_paused = true)]
async fn a_settlement_may_exceed_the_share() {
    for quota in ["100/h", "100/h fixed-window"] {
        let resilience = Resilience::default().instances(10);
        let bench = Bench::with(resilience.without_breaker().without_deny_cache());
        let policy = policy("p", quota);
        let held = bench.hold(policy.charge("alice", 1)).await;
        bench.remote.set(Mood::Down);
        held.settle(61).await.expect("in the backlog");
        bench.remote.set(Mood::Well);
        let _ = bench.check(policy.charge("probe", 0)).await;
        let_tasks_run().await;
        assert_eq!(bench.left(&policy, "alice").await, 39, "{quota}");
    }
}

/// The requests that pass without a charge in an outage have no cost after it either.
#[tokio::test(start_paused = true)]
async fn a_charge_that_was_not_made_is_not_settled() {
    let bench = without_breaker();
    let policy = policy("p", "100/h");
    let allowed = || policy.charge("alice", 1).with_on_failure(OnFailure::Allow);
    bench.remote.set(Mood::Down);
    let in_outage = bench.hold(allowed()).await;
    let without_estimate =
        bench.hold(policy.charge("alice", 0).with_on_failure(OnFailure::Allow)).await;
    let after_it = bench.hold(allowed()).await;
    for reservation in [in_outage, without_estimate] {
        assert!(reservation.receipt().lines().is_empty());
        reservation.settle(11).await.expect("nothing to settle");
    }
    bench.heal(&policy).await;
    let calls = bench.remote.calls();
    after_it.settle(11).await.expect("nothing to settle");
    assert_eq!(bench.remote.calls(), calls, "no request for nothing");
    assert_eq!(bench.left(&policy, "alice").await, 100);

    // A charge that the store has made is settled during an outage, unless it is a shadow.
    for (charge, left) in [(allowed(), 89), (policy.charge("bob", 1).shadow(), 99)] {
        let key = if charge.is_live() { "alice" } else { "bob" };
        let held = bench.hold(charge).await;
        bench.remote.set(Mood::Down);
        held.settle(11).await.expect("in the backlog");
        bench.heal(&policy).await;
        assert_eq!(bench.left(&policy, key).await, left, "{key}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_reset_empties_the_backlog_of_the_key() {
    let bench = without_breaker();
    let policy = policy("p", "10/h");
    for store in [Mood::Down, Mood::Well] {
        bench.remote.set(Mood::Down);
        assert_eq!(bench.admitted(&policy, 20).await, 10);
        let _ = bench.check(policy.charge("bob", 4)).await;
        bench.remote.set(store);
        let reset = bench.limiter.reset(policy.charge("alice", 1)).await;
        assert_eq!(reset.is_ok(), store == Mood::Well, "the store has to hear of it");
        bench.remote.set(Mood::Down);
        assert_eq!(bench.admitted(&policy, 3).await, 3, "there is a share again");
        bench.remote.set(Mood::Well);
        let _ = bench.check(policy.charge("probe", 0)).await;
        let_tasks_run().await;
        assert_eq!(bench.left(&policy, "alice").await, 7, "what came after is charged");
        assert_eq!(bench.left(&policy, "bob").await, 6, "no other key is reset");
        bench.limiter.reset([policy.charge("alice", 1), policy.charge("bob", 1)]).await.unwrap();
    }
}

/// Not all of these keys are known to the store, which has not been charged yet.
#[tokio::test(start_paused = true)]
async fn a_reset_and_a_block_find_what_this_process_knows() {
    let minute = Duration::from_secs(60);
    let bench = without_breaker();
    let policy = policy("p", "10/h");
    let charge = |key| policy.charge(key, 1);
    bench.remote.set(Mood::Down);
    for key in ["alice", "bob"] {
        assert_eq!(bench.check(charge(key)).await.source(), Source::Fallback);
    }
    bench.limiter.block(charge("carol"), minute).await.expect_err("the store is down");
    bench.remote.set(Mood::Well);
    let keys = || ["nobody", "alice"].map(charge);
    assert_eq!(bench.limiter.reset(keys()).await.unwrap(), 1);
    assert_eq!(bench.limiter.reset(keys()).await.unwrap(), 0);
    assert_eq!(bench.limiter.block(charge("bob"), minute).await.unwrap(), 1);
    assert_eq!(bench.limiter.block(charge("dave"), minute).await.unwrap(), 0);
    assert_eq!(bench.limiter.unblock(charge("carol")).await.unwrap(), 1);
    assert_eq!(bench.limiter.unblock(charge("carol")).await.unwrap(), 0);
}

/// Says what is true: the store keeps what it has been charged.
#[tokio::test(start_paused = true)]
async fn a_refund_after_the_replay_returns_nothing() {
    let bench = Bench::new(1);
    let policy = policy("p", "10/h");
    bench.remote.set(Mood::Down);
    let (held, other) =
        (bench.hold(policy.charge("alice", 4)).await, bench.hold(policy.charge("alice", 3)).await);
    assert_eq!(other.refund().await.expect("refunded here"), 3);
    bench.heal(&policy).await;
    assert_eq!(bench.left(&policy, "alice").await, 6);
    assert_eq!(held.refund().await.expect("it is known"), 0);
    bench.heal(&policy).await;
    assert_eq!(bench.left(&policy, "alice").await, 6);
}

#[tokio::test(start_paused = true)]
async fn a_refund_during_the_replay_returns_nothing() {
    let bench = without_breaker();
    let policy = policy("p", "10/h");
    bench.remote.set(Mood::Down);
    let held = bench.hold(policy.charge("alice", 4)).await;
    bench.remote.set(Mood::Well);
    let _ = bench.check(policy.charge("probe", 0)).await;
    bench.remote.set(Mood::Mute);
    let_tasks_run().await;
    assert_eq!(held.refund().await.expect("it is known"), 0);
    bench.heal(&policy).await;
    assert_eq!(bench.left(&policy, "alice").await, 6, "charged, though without an answer");
}

#[tokio::test(start_paused = true)]
async fn a_refund_of_a_shadow_leaves_the_backlog() {
    let bench = without_breaker();
    let policy = policy("p", "10/h");
    bench.remote.set(Mood::Down);
    assert!(bench.check(policy.charge("alice", 4)).await.is_allowed());
    let shadow = bench.hold(policy.charge("alice", 4).shadow()).await;
    assert_eq!(shadow.refund().await.expect("refunded here"), 4);
    bench.heal(&policy).await;
    assert_eq!(bench.left(&policy, "alice").await, 6);
}

/// The replay charges those units that would still count if the store had admitted them itself.
#[tokio::test(start_paused = true)]
async fn the_replay_charges_what_still_counts() {
    // The units that are admitted, with their age when the store is back, and the units that count then.
    for (quota, instances, admissions, left) in [
        // From 22:13 to 23:50, and to five past midnight.
        ("100/d fixed-window", 1, [(100, 5_800), (0, 900)], 100),
        ("100/d fixed-window", 1, [(60, 5_800), (30, 900)], 70),
        ("100/d fixed-window", 1, [(30, 1_000), (30, 900)], 40),
        ("1/s token-bucket(100)", 1, [(100, 0), (0, 30)], 30),
        ("1/s token-bucket(100)", 1, [(60, 0), (40, 20)], 20),
        ("2/s token-bucket(100)", 2, [(50, 0), (0, 10)], 60),
        ("1/h token-bucket(1)", 1, [(1, 0), (0, 3_590)], 0),
        ("100/100s sliding-counter", 1, [(100, 90), (0, 60)], 50),
        // Half of the 60 units of the period before, and 20 of this one.
        ("100/100s sliding-counter", 1, [(60, 90), (20, 60)], 50),
        ("100/100s sliding-buckets(2)", 1, [(100, 1), (0, 120)], 0),
        ("100/100s sliding-buckets(2)", 1, [(100, 1), (0, 160)], 100),
    ] {
        let resilience = Resilience::default().instances(instances);
        let bench = Bench::with(resilience.without_breaker().without_deny_cache());
        let policy = policy("p", quota);
        bench.remote.set(Mood::Down);
        for (units, later) in admissions {
            bench.pass(Duration::from_secs(later)).await;
            assert_eq!(bench.admitted(&policy, units).await, units, "{quota}");
        }
        bench.remote.set(Mood::Well);
        let _ = bench.check(policy.charge("probe", 0)).await;
        let_tasks_run().await;
        assert_eq!(bench.left(&policy, "alice").await, left, "{quota} {admissions:?}");
    }
}

/// A full fallback forgets keys, and the backlog knows them.
#[tokio::test(start_paused = true)]
async fn units_of_keys_that_the_fallback_has_forgotten_are_charged() {
    for quota in ["10/h", "10/h sliding-counter", "10/h fixed-window", "10/h token-bucket(10)"] {
        let resilience = Resilience::default().fallback(MemoryConfig::default().max_keys(64));
        let bench = Bench::with(resilience.without_breaker().without_deny_cache());
        let policy = policy("p", quota);
        bench.remote.set(Mood::Down);
        for key in 0..500_u64 {
            let _ = bench.check(policy.charge(key, 2)).await;
        }
        bench.remote.set(Mood::Well);
        let _ = bench.check(policy.charge("probe", 0)).await;
        for _ in 0..100 {
            let_tasks_run().await;
        }
        let mut admitted = 0;
        for key in 0..500_u64 {
            let decision = bench.check(policy.charge(key, 0)).await;
            let left = decision.outcomes().next().expect("an outcome").standing().remaining;
            assert!(left == 8 || left == 10, "{quota}: {left}");
            admitted += u64::from(left == 8);
        }
        assert!(admitted > 400, "{quota}: {admitted} of 500 keys");
    }
}

#[tokio::test(start_paused = true)]
async fn twenty_thousand_entries_are_replayed() {
    let bench = without_breaker();
    let policy = policy("p", "10/h fixed-window");
    bench.remote.set(Mood::Down);
    for key in 0..20_000_u64 {
        for _ in 0..2 {
            let _ = bench.check(policy.charge(key, 1)).await;
        }
    }
    bench.remote.set(Mood::Well);
    let calls = bench.remote.calls();
    let _ = bench.check(policy.charge("probe", 0)).await;
    for _ in 0..100 {
        let_tasks_run().await;
    }
    assert_eq!(bench.remote.calls() - calls, 1 + 20_000);
}

#[test]
fn a_replay_continues_in_another_runtime() {
    let runtime =
        || -> Runtime { Builder::new_current_thread().enable_all().build().expect("a runtime") };
    let bench = without_breaker();
    let policy = policy("p", "10/h");
    let first = runtime();
    first.block_on(async {
        bench.remote.set(Mood::Down);
        let _ = bench.check(policy.charge("alice", 1)).await;
        bench.remote.set(Mood::Well);
        let _ = bench.check(policy.charge("probe", 0)).await;
        bench.remote.set(Mood::Hangs);
        let_tasks_run().await;
    });
    drop(first);
    runtime().block_on(async {
        bench.remote.set(Mood::Down);
        let _ = bench.check(policy.charge("bob", 4)).await;
        bench.remote.set(Mood::Well);
        let _ = bench.check(policy.charge("probe", 0)).await;
        let_tasks_run().await;
        assert_eq!(bench.left(&policy, "bob").await, 6);
    });
}
