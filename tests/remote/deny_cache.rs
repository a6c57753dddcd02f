use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use plimsoll::{
    Charge, Decision, Limiter, Resilience,
    clock::ManualClock,
    limiter::Reserved,
    store::{Answer, Request, Source, Store, Verdict},
};
use plimsoll_testing::policy;

use crate::{
    delayed::DelayedResets,
    remote::{Mood, Remote},
};

pub(crate) const START: u64 = 1_700_000_000_000_000;

pub(crate) fn cached(clock: &ManualClock) -> (Limiter, Remote) {
    let remote = Remote::new(clock);
    let limiter =
        Limiter::with_resilience(remote.clone(), Resilience::default().clock(clock.clone()));
    (limiter, remote)
}

async fn spend(limiter: &Limiter, charge: Charge<'_>) {
    assert!(limiter.check(charge).await.unwrap().is_allowed());
}

async fn denied(limiter: &Limiter, charge: Charge<'_>) -> (Option<Duration>, Source) {
    match limiter.check(charge).await.unwrap() {
        Decision::Denied(denied) => {
            let wait = denied.retry_after();
            (wait, Decision::Denied(denied).source())
        }
        Decision::Allowed(allowed) => panic!("{allowed:?}"),
    }
}

#[tokio::test]
async fn a_denied_key_costs_the_store_nothing() {
    let clock = ManualClock::at(START);
    let (limiter, remote) = cached(&clock);
    let policy = policy("p", "2/s");
    for _ in 0..2 {
        assert!(limiter.check(policy.charge("alice", 1)).await.unwrap().is_allowed());
    }
    for _ in 0..1_000 {
        assert!(!limiter.check(policy.charge("alice", 1)).await.unwrap().is_allowed());
    }
    // The last admission said as much.
    assert_eq!(remote.calls(), 2);
    clock.advance(Duration::from_micros(999_999));
    let Decision::Denied(denied) = limiter.check(policy.charge("alice", 1)).await.unwrap() else {
        panic!("a microsecond early")
    };
    assert_eq!(denied.retry_after(), Some(Duration::from_micros(1)));
    clock.advance(Duration::from_micros(1));
    assert!(limiter.check(policy.charge("alice", 1)).await.unwrap().is_allowed());
    assert_eq!(remote.calls(), 3);
}

/// The cache has the standings of the store, which counts a leased quota for longer, and a lower burst.
#[tokio::test]
async fn a_denial_under_a_leased_quota_is_known() {
    for (quota, capacity, wait) in [
        ("3/s leased(100ms)", 3, 1_100),
        ("3/s fixed-window leased(100ms)", 3, 1_000),
        ("10/s token-bucket(4) leased(100ms)", 3, 100),
    ] {
        let clock = ManualClock::at(START);
        let (limiter, remote) = cached(&clock);
        let policy = policy("p", quota);
        spend(&limiter, policy.charge("alice", capacity)).await;
        for _ in 0..3 {
            let (found, source) = denied(&limiter, policy.charge("alice", 1)).await;
            assert_eq!(
                (found, source),
                (Some(Duration::from_millis(wait)), Source::Cache),
                "{quota}"
            );
            let charge = policy.charge("alice", capacity + 1);
            assert_eq!(denied(&limiter, charge).await, (None, Source::Cache), "{quota}");
        }
        assert_eq!(remote.calls(), 1, "{quota}");
        clock.advance(Duration::from_millis(wait));
        spend(&limiter, policy.charge("alice", 1)).await;
    }
}

/// A unit each 86.4 s. From one answer it follows how long the next unit and all units wait, and each other cost
/// asks once.
#[tokio::test]
async fn higher_costs_wait_as_the_store_would_say() {
    let clock = ManualClock::at(START);
    let (limiter, remote) = cached(&clock);
    let policy = policy("p", "1000/day token-bucket(10)");
    spend(&limiter, policy.charge("alice", 10)).await;
    let unit = Duration::from_millis(86_400);
    for cost in [1, 2, 7, 10] {
        let expected = Some(unit * cost as u32);
        assert_eq!(denied(&limiter, policy.charge("alice", cost)).await.0, expected);
        let (wait, source) = denied(&limiter, policy.charge("alice", cost)).await;
        assert_eq!((wait, source), (expected, Source::Cache));
    }
    assert_eq!(remote.calls(), 1 + 2);
    clock.advance(Duration::from_millis(999));
    let (wait, source) = denied(&limiter, policy.charge("alice", 7)).await;
    let expected = unit * 7 - Duration::from_millis(999);
    assert_eq!((wait, source), (Some(expected), Source::Cache));
}

#[tokio::test(start_paused = true)]
async fn until_ready_waits_if_the_wait_ends_in_time() {
    let clock = ManualClock::at(START);
    let (limiter, _) = cached(&clock);
    for quota in ["20/min token-bucket(20)", "20/min sliding-log"] {
        let policy = policy("p", quota);
        for _ in 0..20 {
            spend(&limiter, policy.charge("job", 1)).await;
            clock.advance(Duration::from_millis(10));
        }
        let _ = denied(&limiter, policy.charge("job", 1)).await;
        let wait = denied(&limiter, policy.charge("job", 2)).await.0.unwrap();
        let within = wait + Duration::from_secs(1);
        let mut waiting = Box::pin(limiter.until_ready(policy.charge("job", 2), within));
        assert!(futures_util::poll!(&mut waiting).is_pending());
        clock.advance(wait);
        let decision = waiting.await.unwrap();
        assert!(decision.is_allowed(), "{quota}: {decision:?}");
    }
}

/// The reply of a log tells the waits of the next unit, of all units, and of the cost that was
/// asked for.
#[tokio::test]
async fn the_wait_of_one_other_cost_is_cached() {
    let clock = ManualClock::at(START);
    let (limiter, remote) = cached(&clock);
    let policy = policy("p", "10/h");
    for cost in [1, 2, 4] {
        spend(&limiter, policy.charge("alice", cost)).await;
        clock.advance(Duration::from_secs(60));
    }
    let minutes = |minutes: u64| Some(Duration::from_secs(60 * minutes));
    assert_eq!(denied(&limiter, policy.charge("alice", 5)).await, (minutes(58), Source::Shared));
    for _ in 0..10 {
        // The fourth unit that returns is the next one; the tenth is the last.
        assert_eq!(denied(&limiter, policy.charge("alice", 4)).await.0, minutes(57));
        assert_eq!(denied(&limiter, policy.charge("alice", 5)).await.0, minutes(58));
        assert_eq!(denied(&limiter, policy.charge("alice", 10)).await.0, minutes(59));
        assert_eq!(denied(&limiter, policy.charge("alice", 11)).await, (None, Source::Cache));
    }
    assert_eq!(remote.calls(), 3 + 1);
    // Another cost takes its place. What lies between two costs that wait equally long is known.
    assert_eq!(denied(&limiter, policy.charge("alice", 7)).await, (minutes(59), Source::Shared));
    for _ in 0..10 {
        assert_eq!(denied(&limiter, policy.charge("alice", 8)).await.0, minutes(59));
        assert_eq!(denied(&limiter, policy.charge("alice", 7)).await.0, minutes(59));
    }
    assert_eq!(remote.calls(), 3 + 2);
    assert_eq!(denied(&limiter, policy.charge("alice", 5)).await, (minutes(58), Source::Shared));
    spend(&limiter, policy.charge("alice", 3)).await;
    assert_eq!(remote.calls(), 3 + 4);
}

#[tokio::test]
async fn a_cost_over_capacity_costs_the_store_one_call() {
    let clock = ManualClock::at(START);
    let (limiter, remote) = cached(&clock);
    let policy = policy("p", "5/h");
    for _ in 0..1_000 {
        let decision = limiter.check(policy.charge("alice", 6)).await.unwrap();
        let outcome = decision.outcomes().next().unwrap();
        assert_eq!((outcome.verdict(), outcome.standing().remaining), (Verdict::OverCapacity, 5));
    }
    assert_eq!(remote.calls(), 1);
}

/// The wait for the second key of a check is not known, so the store is asked for it: a limited number of times
/// a second. Beyond that, the denial has no wait.
#[tokio::test]
async fn invented_second_keys_cost_the_store_a_bounded_number_of_calls() {
    let clock = ManualClock::at(START);
    let (limiter, remote) = cached(&clock);
    let (address, account) = (policy("address", "5/h"), policy("account", "100/h"));
    spend(&limiter, address.charge("1.2.3.4", 5)).await;
    clock.advance(Duration::from_secs(1));
    // The first check of each second finds no entry for the address either.
    for (second, calls, cost) in [(0, 1_001, 1), (1, 1_001, 1), (2, 1, 101)] {
        let before = remote.calls();
        for made_up in 0..5_000_u64 {
            let key = made_up + 5_000 * second;
            let charges = [address.charge("1.2.3.4", 1), account.charge(key, cost)];
            let Decision::Denied(denied) = limiter.check(charges).await.unwrap() else { panic!() };
            let other = denied.outcomes().nth(1).unwrap();
            let standing = (other.standing().remaining, other.granted());
            assert_eq!(standing, (100, 0));
            // A cost over the capacity never passes, whatever the wait for the other key is.
            assert_eq!(denied.is_over_capacity(), cost == 101);
            let has_wait = made_up < calls && cost == 1;
            let wait = Duration::from_secs(3_599 - second);
            assert_eq!(denied.retry_after(), has_wait.then_some(wait), "{made_up}");
        }
        assert_eq!(remote.calls() - before, calls);
        clock.advance(Duration::from_secs(1));
    }
}

/// The second key waits longer than the key that the cache knows.
#[tokio::test]
async fn a_wait_from_the_cache_covers_all_charges() {
    let clock = ManualClock::at(START);
    let (limiter, _) = cached(&clock);
    let (second, day) = (policy("second", "1/s"), policy("day", "2/day"));
    spend(&limiter, day.charge("alice", 2)).await;
    clock.advance(Duration::from_millis(1_500));
    spend(&limiter, second.charge("alice", 1)).await;
    for expected in [Source::Shared, Source::Cache] {
        let charges = [second.charge("alice", 1), day.charge("alice", 1)];
        let Decision::Denied(denied) = limiter.check(charges).await.unwrap() else { panic!() };
        assert_eq!(denied.retry_after(), Some(Duration::from_millis(86_398_500)));
        assert_eq!(Decision::Denied(denied).source(), expected);
    }
}

/// A job waits on, although the cache does not know for how long.
#[tokio::test(start_paused = true)]
async fn a_job_waits_although_the_cache_knows_no_wait() {
    let clock = ManualClock::at(START);
    let (limiter, _) = cached(&clock);
    let (all, own) = (policy("all", "5/s"), policy("own", "5/s"));
    spend(&limiter, all.charge("all", 5)).await;
    for made_up in 0..2_000_u64 {
        let charges = [all.charge("all", 1), own.charge(made_up, 1)];
        assert!(!limiter.check(charges).await.unwrap().is_allowed());
    }
    let charges = [all.charge("all", 1), own.charge("job", 1)];
    let mut job = Box::pin(limiter.until_ready(charges, Duration::from_secs(5)));
    assert!(futures_util::poll!(&mut job).is_pending());
    clock.advance(Duration::from_secs(1));
    assert!(job.await.unwrap().is_allowed());
}

/// A quota that comes back a thousand times a second costs one call for each unit that does.
#[tokio::test]
async fn a_fast_quota_costs_a_call_for_each_unit_that_returns() {
    let clock = ManualClock::at(START);
    let (limiter, remote) = cached(&clock);
    for (quota, cost, calls) in [
        ("1000/s token-bucket(1)", 1, 2_001),
        ("1000/s token-bucket(5000)", 5_000, 2_001),
        ("1000/s sliding-counter", 600, 1_200),
        ("1000/s sliding-log", 600, 8),
        ("1000/s fixed-window", 1_000, 3),
    ] {
        let policy = policy("p", quota);
        let (before, mut allowed) = (remote.calls(), 0);
        for _ in 0..20_000 {
            allowed +=
                u64::from(limiter.check(policy.charge(quota, cost)).await.unwrap().is_allowed());
            clock.advance(Duration::from_micros(100));
        }
        let asked = remote.calls() - before;
        eprintln!("{quota}, cost {cost}: 20,000 checks in 2 s, {allowed} admitted, {asked} calls");
        assert!(asked <= calls, "{quota}: {asked} calls");
    }
}

/// Keys that happen to share a place in a table do not push each other out.
#[tokio::test]
async fn hundreds_of_attacked_keys_cost_a_call_each() {
    let clock = ManualClock::at(START);
    let (limiter, remote) = cached(&clock);
    let policy = policy("p", "10/h");
    for key in 0..300_u64 {
        spend(&limiter, policy.charge(key, 5)).await;
    }
    for _ in 0..10 {
        for key in 0..300_u64 {
            let _ = denied(&limiter, policy.charge(key, 7)).await;
        }
    }
    assert_eq!(remote.calls(), 300 + 300);
}

#[tokio::test(start_paused = true)]
async fn a_denial_of_the_fallback_is_not_cached() {
    let clock = ManualClock::at(START);
    let (limiter, remote) = cached(&clock);
    let policy = policy("p", "1/h");
    remote.set(Mood::Down);
    for allowed in [true, false, false] {
        let decision = limiter.check(policy.charge("alice", 1)).await.unwrap();
        assert_eq!((decision.is_allowed(), decision.source()), (allowed, Source::Fallback));
    }
}

#[tokio::test]
async fn without_deny_cache_each_check_is_sent() {
    let clock = ManualClock::at(START);
    let remote = Remote::new(&clock);
    let limiter =
        Limiter::with_resilience(remote.clone(), Resilience::default().without_deny_cache());
    let policy = policy("p", "1/h");
    for _ in 0..10 {
        let _ = limiter.check(policy.charge("alice", 1)).await.unwrap();
    }
    assert_eq!(remote.calls(), 10);
}

/// A denial that is in flight during a refund is not cached.
#[tokio::test]
async fn a_denial_in_flight_does_not_outlive_a_refund() {
    let clock = ManualClock::at(START);
    let (limiter, remote) = cached(&clock);
    let policy = policy("p", "5/h");
    let Reserved::Held(held) = limiter.reserve(policy.charge("alice", 2)).await.unwrap() else {
        panic!("two are free")
    };
    remote.set(Mood::Late);
    let mut late = Box::pin(limiter.check(policy.charge("alice", 4)));
    assert!(futures_util::poll!(&mut late).is_pending());
    remote.set(Mood::Well);
    held.refund().await.unwrap();
    assert!(!late.await.unwrap().is_allowed());
    let decision = limiter.check(policy.charge("alice", 4)).await.unwrap();
    assert!(decision.is_allowed(), "{decision:?}");
}

/// A reset whose future was dropped may be executed later than a check that was sent after it.
#[tokio::test]
async fn a_denial_does_not_outlive_an_abandoned_change() {
    for given_up in [true, false] {
        let clock = ManualClock::at(START);
        let remote = DelayedResets::new(&clock);
        let limiter =
            Limiter::with_resilience(remote.clone(), Resilience::default().clock(clock.clone()));
        let policy = policy("p", "1/h");
        spend(&limiter, policy.charge("alice", 1)).await;
        let mut reset = Box::pin(limiter.reset(policy.charge("alice", 0)));
        assert!(futures_util::poll!(&mut reset).is_pending());
        // The reset has not arrived yet.
        let _ = denied(&limiter, policy.charge("alice", 1)).await;
        if given_up {
            drop(reset);
        } else {
            reset.await.unwrap();
        }
        let decision = limiter.check(policy.charge("alice", 1)).await.unwrap();
        assert!(decision.is_allowed(), "{decision:?}");
    }
}

/// A dropped reset may arrive even after a check that was sent later.
#[tokio::test]
async fn a_denial_does_not_outlive_a_change_that_arrives_late() {
    let patient = Resilience::default().deadline(Duration::from_millis(300));
    for (resilience, doubt) in [(Resilience::default(), 100), (patient, 600)] {
        let clock = ManualClock::at(START);
        let remote = DelayedResets::late(&clock);
        let limiter = Limiter::with_resilience(remote.clone(), resilience.clock(clock.clone()));
        let policy = policy("p", "1/h");
        spend(&limiter, policy.charge("alice", 1)).await;
        let mut reset = Box::pin(limiter.reset(policy.charge("alice", 0)));
        assert!(futures_util::poll!(&mut reset).is_pending());
        drop(reset);
        clock.advance(Duration::from_millis(doubt - 1));
        assert_eq!(denied(&limiter, policy.charge("alice", 1)).await.1, Source::Shared);
        remote.arrive();
        spend(&limiter, policy.charge("alice", 1)).await;
        // From then on denials are cached.
        clock.advance(Duration::from_millis(1));
        assert_eq!(denied(&limiter, policy.charge("alice", 1)).await.1, Source::Shared);
        assert_eq!(denied(&limiter, policy.charge("alice", 1)).await.1, Source::Cache);
    }
}

/// The units of a check count, also if the check was dropped before its answer came.
#[tokio::test]
async fn an_abandoned_check_voids_the_entry() {
    let clock = ManualClock::at(START);
    let (limiter, remote) = cached(&clock);
    let policy = policy("p", "10/h");
    spend(&limiter, policy.charge("alice", 4)).await;
    clock.advance(Duration::from_secs(60));
    let first = denied(&limiter, policy.charge("alice", 7)).await.0;
    assert_eq!(first, Some(Duration::from_secs(3_540)));
    let mut check = Box::pin(limiter.check(policy.charge("alice", 6)));
    remote.set(Mood::Late);
    assert!(futures_util::poll!(&mut check).is_pending());
    drop(check);
    remote.set(Mood::Well);
    let then = denied(&limiter, policy.charge("alice", 7)).await;
    assert_eq!(then, (Some(Duration::from_secs(3_600)), Source::Shared));
}

/// A store far away: a request travels for 20 ms, and its reply for 10 ms, as long as `is_far`.
#[derive(Debug)]
struct Distant {
    remote: Remote,
    clock: ManualClock,
    is_far: Arc<AtomicBool>,
}

impl Store for Distant {
    fn call(&self, request: Request<'_>, deadline: Option<std::time::Instant>) -> Answer {
        let travel = |millis| {
            if self.is_far.load(Ordering::SeqCst) {
                self.clock.advance(Duration::from_millis(millis));
            }
        };
        travel(20);
        let reply = self.remote.call(request, deadline);
        travel(10);
        reply
    }
}

/// The units come back a second after the store has decided, which is later than a second after the
/// request was sent.
#[tokio::test]
async fn a_wait_from_the_cache_is_long_enough() {
    for quota in ["2/s", "2/s token-bucket(2)", "2/s fixed-window", "2/s sliding-counter"] {
        let clock = ManualClock::at(START);
        let (remote, is_far) = (Remote::new(&clock), Arc::new(AtomicBool::new(true)));
        let store =
            Distant { remote: remote.clone(), clock: clock.clone(), is_far: Arc::clone(&is_far) };
        let limiter = Limiter::with_resilience(store, Resilience::default().clock(clock.clone()));
        let policy = policy("p", quota);
        spend(&limiter, policy.charge("alice", 2)).await;
        let (wait, source) = denied(&limiter, policy.charge("alice", 1)).await;
        assert_eq!(source, Source::Cache, "{quota}");
        is_far.store(false, Ordering::SeqCst);
        // The cache does not deny for longer than the store, so it asks 30 ms before the end.
        let calls = remote.calls();
        clock.advance(wait.expect("a wait") - Duration::from_millis(30));
        let _ = limiter.check(policy.charge("alice", 1)).await;
        assert_eq!(remote.calls(), calls + 1, "{quota}");
        clock.advance(Duration::from_millis(30));
        spend(&limiter, policy.charge("alice", 1)).await;
    }
}

/// A denial under the quota of one charge says nothing about a charge with another quota.
#[tokio::test]
async fn each_quota_of_a_key_has_denials_of_its_own() {
    let clock = ManualClock::at(START);
    let (limiter, remote) = cached(&clock);
    let policy = policy("p", "1/day");
    let charge = |quota: &str| policy.charge("alice", 1).with_quota(quota.parse().unwrap());
    for _ in 0..2 {
        spend(&limiter, charge("2/s")).await;
    }
    let calls = remote.calls();
    assert_eq!(denied(&limiter, charge("2/s")).await.1, Source::Cache);
    assert_eq!(remote.calls(), calls);
    // The customer has bought more.
    for _ in 2..5 {
        spend(&limiter, charge("5/s")).await;
    }
    assert_eq!(denied(&limiter, charge("5/s")).await.0, Some(Duration::from_secs(1)));
}
