//! A limiter never gets stuck: not by extreme settings, not by a store that panics or refuses
//! probes, and not in a runtime that only runs now and then.

use std::{
    future::Future,
    panic::{AssertUnwindSafe, catch_unwind},
    pin::pin,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering::SeqCst},
    },
    task::{Context, Waker},
    thread,
    time::Duration,
};

use futures_util::FutureExt;
use plimsoll::{
    Decision, Error, Limiter, Policy, Resilience,
    clock::ManualClock,
    error::ErrorKind,
    resilience::BreakerConfig,
    store::{Answer, BreakerStatus, Request, Source, Store},
};
use plimsoll_testing::policy;
use tokio::{runtime::Builder, task::yield_now, time::Instant};

use crate::{
    fallback::Bench,
    remote::{Mood, Remote},
};

/// A store that treats probes and other calls in an odd way.
#[derive(Debug, Clone)]
struct Odd {
    remote: Remote,
    probes: Arc<AtomicU64>,
    probe: Reaction,
    /// True if calls other than probes panic.
    panics: Arc<AtomicBool>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Reaction {
    Normal,
    Invalid,
    Panic,
}

impl Odd {
    fn new(probe: Reaction) -> Self {
        let remote = Remote::new(&ManualClock::at(1_700_000_000_000_000));
        Self { remote, probes: Arc::default(), probe, panics: Arc::default() }
    }
}

impl Store for Odd {
    fn call(&self, request: Request<'_>, deadline: Option<std::time::Instant>) -> Answer {
        let is_probe = matches!(
            request,
            Request::Force([charge]) if charge.policy().name() == "plimsoll-probe"
        );
        if !is_probe {
            assert!(!self.panics.load(SeqCst), "a panic on purpose");
            return self.remote.call(request, deadline);
        }
        assert!(self.probes.fetch_add(1, SeqCst) < 1_000, "a storm of probes");
        match self.probe {
            Reaction::Normal => self.remote.call(request, deadline),
            Reaction::Invalid => {
                Answer::ready(Err(Error::new(ErrorKind::Invalid, "no such policy")))
            }
            Reaction::Panic => panic!("on purpose"),
        }
    }
}

async fn check<'p>(limiter: &Limiter, policy: &'p Policy) -> Decision<'p> {
    limiter.check(policy.charge("alice", 1)).await.expect("it falls back")
}

async fn pass(time: Duration) {
    tokio::time::advance(time).await;
    for _ in 0..20 {
        yield_now().await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_deadline_may_be_endless() {
    let bench = Bench::with(Resilience::default().deadline(Duration::MAX));
    let policy = policy("p", "1000000/min");
    assert_eq!(bench.check(policy.charge("alice", 1)).await.source(), Source::Shared);
    bench.remote.set(Mood::Down);
    bench.admitted(&policy, 50).await;
    bench.remote.set(Mood::Well);
    bench.until_probed().await;
    assert_eq!(bench.check(policy.charge("alice", 1)).await.source(), Source::Shared);
}

#[tokio::test(start_paused = true)]
async fn every_duration_of_a_breaker_may_be_endless() {
    let default = BreakerConfig::default();
    let breakers = [
        BreakerConfig { open: Duration::MAX, ..default },
        BreakerConfig { slow: Duration::MAX, ..default },
        BreakerConfig { window: Duration::MAX, ..default },
    ];
    for (index, breaker) in breakers.into_iter().enumerate() {
        let resilience = Resilience::none().breaker(breaker);
        let bench = Bench::with(resilience.fallback(plimsoll::memory::MemoryConfig::default()));
        let policy = policy("p", "1000000/min");
        bench.remote.set(Mood::Down);
        bench.admitted(&policy, 50).await;
        assert!(matches!(bench.breaker(), BreakerStatus::Open { .. }));
        bench.remote.set(Mood::Well);
        for _ in 0..10 {
            bench.until_probed().await;
            bench.admitted(&policy, 1).await;
        }
        let is_open = matches!(bench.breaker(), BreakerStatus::Open { .. });
        assert_eq!(is_open, index == 0, "{:?}", bench.breaker());
    }
}

#[tokio::test(start_paused = true)]
async fn a_breaker_that_opens_for_no_time_does_not_spin() {
    let breaker = BreakerConfig { open: Duration::ZERO, ..BreakerConfig::default() };
    let store = Odd::new(Reaction::Normal);
    let limiter = Limiter::with_resilience(store.clone(), Resilience::default().breaker(breaker));
    let policy = policy("p", "1000000/min");
    store.remote.set(Mood::Down);
    for _ in 0..20 {
        let _ = check(&limiter, &policy).await;
    }
    pass(Duration::from_millis(10)).await;
    assert!(store.probes.load(SeqCst) <= 30, "{store:?}");
}

/// A store around a store may know the policies of its application only.
#[tokio::test(start_paused = true)]
async fn a_store_may_refuse_probes() {
    let store = Odd::new(Reaction::Invalid);
    let limiter = Limiter::with_resilience(store.clone(), Resilience::default());
    let policy = policy("p", "1000000/min");
    store.remote.set(Mood::Down);
    for _ in 0..20 {
        let _ = check(&limiter, &policy).await;
    }
    for _ in 0..10 {
        pass(Duration::from_millis(551)).await;
        for _ in 0..20 {
            assert_eq!(check(&limiter, &policy).await.source(), Source::Fallback);
        }
    }
    assert!(store.probes.load(SeqCst) <= 10, "{store:?}");
    // Ten failures open the breaker again, and one is the charge of the backlog.
    assert!(store.remote.calls() <= 10 + 10 * 11, "{store:?}");
    store.remote.set(Mood::Well);
    pass(Duration::from_millis(551)).await;
    assert_eq!(check(&limiter, &policy).await.source(), Source::Shared);
}

#[tokio::test(start_paused = true)]
async fn a_store_that_panics_at_probes_gets_no_storm_of_them() {
    let store = Odd::new(Reaction::Panic);
    let limiter = Limiter::with_resilience(store.clone(), Resilience::default());
    let policy = policy("p", "1000000/min");
    store.remote.set(Mood::Down);
    for _ in 0..10 {
        for _ in 0..30 {
            let _ = check(&limiter, &policy).await;
            yield_now().await;
        }
        pass(Duration::from_millis(551)).await;
    }
    let probes = store.probes.load(SeqCst);
    assert!((5..=12).contains(&probes), "{probes}");
}

/// Outside of a runtime a call is the probe. If it panics in the store, another one can be.
#[test]
fn a_probe_that_panics_does_not_keep_its_permit() {
    let store = Odd::new(Reaction::Normal);
    let open = Duration::from_millis(20);
    let breaker = BreakerConfig { open, ..BreakerConfig::default() };
    let limiter = Limiter::with_resilience(store.clone(), Resilience::default().breaker(breaker));
    let policy = policy("p", "1000000/min");
    let check = || check(&limiter, &policy).now_or_never().expect("at once").source();
    store.remote.set(Mood::Down);
    for _ in 0..20 {
        assert_eq!(check(), Source::Fallback);
    }
    let is_open = || matches!(limiter.status().breaker, Some(BreakerStatus::Open { .. }));
    assert!(is_open());
    thread::sleep(Duration::from_millis(25));
    store.panics.store(true, SeqCst);
    assert!(catch_unwind(AssertUnwindSafe(check)).is_err(), "it is the probe");
    store.panics.store(false, SeqCst);
    store.remote.set(Mood::Well);
    thread::sleep(Duration::from_millis(25));
    assert_eq!(check(), Source::Shared);
}

/// Outside of a runtime a call is the probe. If its future is kept and not polled, another one can
/// be.
#[test]
fn a_probe_that_is_not_polled_is_replaced() {
    let bench = Bench::with(Resilience::default());
    let policy = policy("p", "1000000/min");
    let check = || bench.check(policy.charge("alice", 1)).now_or_never();
    bench.remote.set(Mood::Down);
    for _ in 0..20 {
        assert_eq!(check().expect("at once").source(), Source::Fallback);
    }
    thread::sleep(Duration::from_millis(560));
    bench.remote.set(Mood::Hangs);
    let mut probe = pin!(bench.check(policy.charge("alice", 1)));
    assert!(probe.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
    bench.remote.set(Mood::Well);
    assert_eq!(check().expect("at once").source(), Source::Fallback, "a probe is in flight");
    thread::sleep(Duration::from_millis(560));
    assert_eq!(check().expect("at once").source(), Source::Shared);
}

/// `block_on` of a check that is decided at once runs no other task, so the prober never runs.
#[test]
fn a_runtime_that_only_runs_during_checks_recovers() {
    let bench = Bench::with(Resilience::default());
    let policy = policy("p", "1000000/min");
    let runtime = Builder::new_current_thread().enable_all().build().expect("a runtime");
    let check = || runtime.block_on(bench.check(policy.charge("alice", 1))).source();
    bench.remote.set(Mood::Down);
    for _ in 0..50 {
        assert_eq!(check(), Source::Fallback);
    }
    assert!(matches!(bench.breaker(), BreakerStatus::Open { .. }));
    bench.remote.set(Mood::Well);
    let healed = Instant::now();
    while check() != Source::Shared {
        assert!(healed.elapsed() < Duration::from_secs(10), "{:?}", bench.breaker());
        thread::sleep(Duration::from_millis(10));
    }
}
