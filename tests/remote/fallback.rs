use std::time::Duration;

use futures_util::{FutureExt, future::join_all};
use plimsoll::{
    Charge, Decision, Limiter, OnFailure, Policy, Resilience,
    clock::ManualClock,
    limiter::{Reservation, Reserved},
    memory::MemoryConfig,
    policy::Charges,
    resilience::BreakerConfig,
    store::{BreakerStatus, Source},
};
use plimsoll_testing::{algorithms::each_quota, policy};
use tokio::time::{Instant, advance};

use crate::remote::{Mood, Remote};

const START: u64 = 1_700_000_000_000_000;

pub(crate) struct Bench {
    pub(crate) limiter: Limiter,
    pub(crate) remote: Remote,
    pub(crate) clock: ManualClock,
}

impl Bench {
    pub(crate) fn new(instances: u32) -> Self {
        Self::with(Resilience::default().instances(instances))
    }

    pub(crate) fn with(resilience: Resilience) -> Self {
        let clock = ManualClock::at(START);
        let remote = Remote::new(&clock);
        let resilience = resilience.clock(clock.clone());
        Self { limiter: Limiter::with_resilience(remote.clone(), resilience), remote, clock }
    }

    pub(crate) async fn check<'p>(&self, charge: Charge<'p>) -> Decision<'p> {
        self.limiter.check(charge).await.expect("it falls back")
    }

    pub(crate) async fn admitted(&self, policy: &Policy, tries: u32) -> u32 {
        let mut admitted = 0;
        for _ in 0..tries {
            admitted += u32::from(self.check(policy.charge("alice", 1)).await.is_allowed());
        }
        admitted
    }

    pub(crate) async fn pass(&self, time: Duration) {
        self.clock.advance(time);
        advance(time).await;
    }

    /// Returns the remaining units of a key in the store.
    pub(crate) async fn left(&self, policy: &Policy, key: &str) -> u64 {
        let peek = self.limiter.peek(policy.charge(key, 0)).await.expect("it falls back");
        assert_eq!(peek.source(), Source::Shared);
        peek.outcomes().next().expect("an outcome").standing().remaining
    }

    /// Returns the state of the breaker.
    pub(crate) fn breaker(&self) -> BreakerStatus {
        self.limiter.status().breaker.expect("a breaker")
    }

    /// Waits until the prober of an open breaker has sent a probe and has read what answer there is.
    pub(crate) async fn until_probed(&self) {
        self.pass(Duration::from_millis(551)).await;
        for _ in 0..20 {
            tokio::task::yield_now().await;
        }
    }

    /// Units that are held.
    pub(crate) async fn hold(&self, charge: Charge<'_>) -> Reservation {
        match self.limiter.reserve(charge).await.expect("it falls back") {
            Reserved::Held(held) => held,
            Reserved::Denied(denied) => panic!("{denied:?}"),
        }
    }

    /// Until the breaker has closed again.
    pub(crate) async fn heal(&self, policy: &Policy) {
        self.remote.set(Mood::Well);
        for _ in 0..40 {
            self.pass(Duration::from_millis(50)).await;
            let _ = self.check(policy.charge("probe", 0)).await;
        }
        for _ in 0..20 {
            tokio::task::yield_now().await;
        }
    }
}

#[tokio::test(start_paused = true)]
async fn no_check_waits_longer_than_the_deadline() {
    let (deadline, ticks) = (Duration::from_millis(50), Duration::from_millis(2));
    for mood in [Mood::Hangs, Mood::Mute] {
        for quota in ["10/min", "10/min leased(1s)", "10 concurrent"] {
            let (policy, other) = (policy("p", quota), policy("other", "10/min"));
            let one = || Charges::from(policy.charge("alice", 1));
            let several = || Charges::from([policy.charge("alice", 1), other.charge("bob", 1)]);
            for charges in [one(), several()] {
                let bench = Bench::new(1);
                bench.remote.set(mood);
                let start = Instant::now();
                let decision = bench.limiter.check(charges.clone()).await.expect("it falls back");
                assert!(decision.is_allowed());
                assert_eq!(decision.source(), Source::Fallback);
                let waited = start.elapsed();
                assert!(waited <= deadline && waited >= deadline - ticks, "{quota}: {waited:?}");

                let bench = Bench::new(1);
                bench.remote.set(mood);
                let start = Instant::now();
                let held = bench.limiter.reserve(charges).await.expect("it falls back");
                assert!(matches!(held, Reserved::Held(_)));
                assert!(start.elapsed() <= deadline, "{quota}: {:?}", start.elapsed());
            }
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_check_waits_no_longer_than_its_own_limit() {
    let (bench, policy) = (Bench::new(1), policy("own-limit", "10/h"));
    let check = async |millis| {
        let start = Instant::now();
        let limit = Duration::from_millis(millis);
        let decision = bench.limiter.check_within(policy.charge("alice", 4), limit).await;
        (decision.expect("it falls back"), start.elapsed())
    };
    let (decision, _) = check(20).await;
    assert_eq!((decision.is_allowed(), decision.source()), (true, Source::Shared));
    bench.remote.set(Mood::Hangs);
    // The deadline of the limiter is 50 ms.
    for (limit, waits) in [(0, 1..=2), (20, 19..=20), (1_000, 48..=50)] {
        let (decision, time) = check(limit).await;
        assert_eq!(decision.source(), Source::Fallback);
        assert!(waits.contains(&time.as_millis()), "{limit}: {time:?}");
    }
    let in_memory = Limiter::in_memory();
    let decision = in_memory.check_within(policy.charge("alice", 4), Duration::ZERO).await;
    assert!(decision.expect("it is embedded").is_allowed());
}

#[tokio::test(start_paused = true)]
async fn a_store_that_fails_is_only_probed() {
    let bench = Bench::new(1);
    let policy = policy("p", "1000000/min");
    bench.remote.set(Mood::Hangs);
    let start = Instant::now();
    bench.admitted(&policy, 1_000).await;
    // Ten calls open the breaker, and no check waits after that.
    assert_eq!(bench.remote.calls(), 10);
    assert!(start.elapsed() < Duration::from_millis(530), "{:?}", start.elapsed());
    for probes in 1..=5 {
        bench.until_probed().await;
        bench.admitted(&policy, 100).await;
        assert_eq!(bench.remote.calls(), 10 + probes);
        // The probe fails at the deadline.
        bench.pass(Duration::from_millis(50)).await;
        tokio::time::sleep(Duration::from_millis(1)).await;
        assert!(matches!(bench.breaker(), BreakerStatus::Open { .. }));
    }
}

#[tokio::test(start_paused = true)]
async fn a_probe_that_succeeds_closes_the_breaker_for_all_calls() {
    let bench = Bench::new(1);
    let policy = policy("p", "1000000/min token-bucket(1000000)");
    bench.remote.set(Mood::Down);
    for _ in 0..10 {
        let _ = bench.check(policy.charge("alice", 0)).await;
    }
    bench.remote.set(Mood::Late);
    bench.until_probed().await;
    assert_eq!(bench.breaker(), BreakerStatus::Closed);
    let before = bench.remote.calls();
    join_all((0..30).map(|_| bench.check(policy.charge("alice", 0)))).await;
    assert_eq!(bench.remote.calls() - before, 30);
}

#[tokio::test(start_paused = true)]
async fn an_idle_limiter_recovers() {
    let bench = Bench::new(2);
    let policy = policy("p", "20/h");
    bench.remote.set(Mood::Down);
    assert_eq!(bench.admitted(&policy, 20).await, 10);
    bench.remote.set(Mood::Well);
    tokio::time::sleep(Duration::from_secs(2)).await;
    assert_eq!(bench.breaker(), BreakerStatus::Closed);
    // The units that the fallback admitted have been charged to the store, too.
    assert_eq!(bench.left(&policy, "alice").await, 10);
}

#[tokio::test(start_paused = true)]
async fn the_prober_ends_with_the_limiter() {
    let bench = Bench::new(1);
    let policy = policy("p", "20/h");
    bench.remote.set(Mood::Down);
    bench.admitted(&policy, 20).await;
    let tasks = || tokio::runtime::Handle::current().metrics().num_alive_tasks();
    assert_eq!(tasks(), 1);
    drop(bench);
    tokio::task::yield_now().await;
    assert_eq!(tasks(), 0);
}

#[test]
fn without_a_runtime_requests_are_the_probes() {
    const OPEN: Duration = Duration::from_millis(5);
    let breaker = BreakerConfig { open: OPEN, ..BreakerConfig::default() };
    let bench = Bench::with(Resilience::default().breaker(breaker));
    let policy = policy("p", "1000/h");
    let check = || {
        let check = bench.limiter.check(policy.charge("alice", 1)).now_or_never();
        check.expect("decided at once").expect("it falls back").source()
    };
    // On a late machine the breaker may admit a probe each time it has been open for long enough.
    let calls_of = |checks: u64, expected: u64| {
        let (before, start) = (bench.remote.calls(), Instant::now());
        (0..checks).for_each(|_| assert_eq!(check(), Source::Fallback));
        let (calls, took) = (bench.remote.calls() - before, start.elapsed());
        let late = (took.as_micros() / OPEN.as_micros()) as u64;
        assert!((expected..=expected + late).contains(&calls), "{calls} calls in {took:?}");
    };
    bench.remote.set(Mood::Down);
    calls_of(20, 10);
    for _ in 0..3 {
        std::thread::sleep(Duration::from_millis(7));
        calls_of(2, 1);
    }
    bench.remote.set(Mood::Well);
    std::thread::sleep(Duration::from_millis(7));
    (0..20).for_each(|_| assert_eq!(check(), Source::Shared));
}

#[tokio::test(start_paused = true)]
async fn each_instance_enforces_its_share() {
    for (quota, _) in each_quota("9/h", 4, 9) {
        let bench = Bench::new(3);
        let policy = policy("p", &quota);
        bench.remote.set(Mood::Down);
        assert_eq!(bench.admitted(&policy, 20).await, 3, "{quota}");
    }
    let bench = Bench::new(50);
    let policy = policy("p", "9/min");
    bench.remote.set(Mood::Down);
    assert_eq!(bench.admitted(&policy, 20).await, 1, "at least one unit");
    // A cost beyond the share but within the limit has a wait.
    let Decision::Denied(denied) = bench.check(policy.charge("bob", 5)).await else {
        panic!("a share is 1")
    };
    assert!(!denied.is_over_capacity() && denied.retry_after().is_some());
    let Decision::Denied(denied) = bench.check(policy.charge("bob", 10)).await else {
        panic!("the limit is 9")
    };
    assert!(denied.is_over_capacity());
}

#[tokio::test(start_paused = true)]
async fn on_failure_decides_for_each_charge() {
    let bench = Bench::new(1);
    let (cheap, dear, own) =
        (policy("cheap", "1/min"), policy("dear", "1/min"), policy("own", "1/min"));
    bench.remote.set(Mood::Down);
    for _ in 0..3 {
        let open = cheap.charge("alice", 1).with_on_failure(OnFailure::Allow);
        assert!(bench.check(open).await.is_allowed());
    }
    let closed = || dear.charge("alice", 1).with_on_failure(OnFailure::Deny);
    let error = bench.limiter.check(closed()).await.expect_err("it fails closed");
    assert!(error.is_unavailable());
    // A shadow denies nothing. One charge that says `Deny` fails the whole check.
    assert!(bench.check(closed().shadow()).await.is_allowed());
    let both = [cheap.charge("alice", 1).with_on_failure(OnFailure::Allow), closed()];
    assert!(bench.limiter.check(both).await.is_err());
    // The charges that the fallback decides are admitted all or none.
    let mixed =
        || [own.charge("alice", 1), cheap.charge("alice", 1).with_on_failure(OnFailure::Allow)];
    assert!(bench.limiter.check(mixed()).await.expect("decided").is_allowed());
    assert!(!bench.limiter.check(mixed()).await.expect("decided").is_allowed());
}

#[tokio::test(start_paused = true)]
async fn units_of_an_outage_are_charged_once() {
    for (quota, _) in each_quota("10/400d", 4, 10) {
        let bench = Bench::new(2);
        let policy = policy("p", &quota);
        assert_eq!(bench.admitted(&policy, 3).await, 3);
        bench.remote.set(Mood::Down);
        assert_eq!(bench.admitted(&policy, 20).await, 5, "{quota}: half of the limit");
        let reserve = bench.limiter.reserve(policy.charge("alice", 1)).await.unwrap();
        assert!(matches!(reserve, Reserved::Denied(_)), "{quota}: the share is spent");
        bench.heal(&policy).await;
        let peek = bench.limiter.peek(policy.charge("alice", 0)).await.unwrap();
        assert_eq!(peek.source(), Source::Shared);
        let remaining = peek.outcomes().next().unwrap().standing().remaining;
        assert_eq!(remaining, 10 - 3 - 5, "{quota}");
        // And nothing more, ever after.
        bench.heal(&policy).await;
        assert_eq!(bench.admitted(&policy, 20).await, 2, "{quota}");
    }
}

#[tokio::test(start_paused = true)]
async fn refunded_units_of_an_outage_are_not_charged() {
    let bench = Bench::new(1);
    let policy = policy("p", "10/h");
    bench.remote.set(Mood::Down);
    for kept in [true, false, true, false, false] {
        let Reserved::Held(held) = bench.limiter.reserve(policy.charge("alice", 2)).await.unwrap()
        else {
            panic!("4 are kept of 10")
        };
        if !kept {
            held.refund().await.expect("refunded here");
        }
    }
    bench.heal(&policy).await;
    let peek = bench.limiter.peek(policy.charge("alice", 0)).await.unwrap();
    assert_eq!(peek.outcomes().next().unwrap().standing().remaining, 6);
}

/// The store may have charged the units of a check that timed out, so they are not refunded. They also
/// stay spent in this process, or it would admit more than its share.
#[tokio::test(start_paused = true)]
async fn a_refund_of_units_that_the_store_may_count_frees_nothing() {
    let bench = Bench::new(1);
    let policy = policy("p", "10/h");
    bench.remote.set(Mood::Mute);
    let Reserved::Held(held) = bench.limiter.reserve(policy.charge("alice", 4)).await.unwrap()
    else {
        panic!("the fallback admits it")
    };
    assert_eq!(held.receipt().source, Source::Fallback);
    assert_eq!(held.refund().await.expect("an answer"), 0);
    bench.remote.set(Mood::Down);
    assert_eq!(bench.admitted(&policy, 20).await, 6);
}

#[tokio::test(start_paused = true)]
async fn expired_units_of_an_outage_are_not_charged() {
    let bench = Bench::new(1);
    let policy = policy("p", "10/10s");
    bench.remote.set(Mood::Down);
    assert_eq!(bench.admitted(&policy, 20).await, 10);
    bench.pass(Duration::from_secs(10)).await;
    bench.heal(&policy).await;
    assert_eq!(bench.admitted(&policy, 20).await, 10);
}

/// An outage of many windows leaves no more to be charged than what still counts.
#[tokio::test(start_paused = true)]
async fn only_the_last_window_of_an_outage_is_charged() {
    for quota in ["10/10s", "10/10s sliding-buckets(5)", "10/10s token-bucket(10)"] {
        let bench = Bench::new(1);
        let policy = policy("p", quota);
        bench.remote.set(Mood::Down);
        for _ in 0..20 {
            assert_eq!(bench.admitted(&policy, 4).await, 4);
            bench.pass(Duration::from_secs(6)).await;
        }
        bench.heal(&policy).await;
        let peek = bench.limiter.peek(policy.charge("alice", 0)).await.unwrap();
        let left = peek.outcomes().next().unwrap().standing().remaining;
        assert!((6..=10).contains(&left), "{quota}: {left}");
        assert_eq!(peek.source(), Source::Shared);
    }
}

/// The published bound: the limit, and a share for each instance, in any window around an outage. It is one more
/// limit if the store loses its data.
#[tokio::test(start_paused = true)]
async fn an_outage_admits_no_more_than_the_bound() {
    const INSTANCES: u32 = 4;
    for quota in ["20/h", "20/h sliding-buckets(10)", "20/h leased(1s)"] {
        for loses_data in [false, true] {
            let clock = ManualClock::at(START);
            let remote = Remote::new(&clock);
            let policy = policy("p", quota);
            let limiters: Vec<_> = (0..INSTANCES)
                .map(|_| {
                    let resilience =
                        Resilience::default().instances(INSTANCES).clock(clock.clone());
                    Bench {
                        limiter: Limiter::with_resilience(remote.clone(), resilience),
                        remote: remote.clone(),
                        clock: clock.clone(),
                    }
                })
                .collect();
            let mut admitted = 0;
            let moods = [Mood::Mute, Mood::Down, Mood::Hangs, Mood::Down];
            let moods = moods.into_iter().flat_map(|mood| [Mood::Well, mood]).chain([Mood::Well]);
            for (number, mood) in moods.enumerate() {
                remote.set(mood);
                if loses_data && number == 4 {
                    let stranger = Limiter::with_resilience(remote.clone(), Resilience::none());
                    stranger.reset(policy.charge("alice", 0)).await.expect("it is well");
                }
                for bench in &limiters {
                    admitted += bench.admitted(&policy, 30).await;
                    for _ in 0..4 {
                        bench.pass(Duration::from_millis(400)).await;
                        admitted += bench.admitted(&policy, 5).await;
                    }
                }
            }
            let most = 20 + INSTANCES * 5 + if loses_data { 20 } else { 0 };
            assert!(admitted <= most, "{quota}: {admitted}");
            assert!(admitted > 20, "{quota}: the outage was felt");
        }
    }
}

#[test]
fn an_embedded_store_has_no_stages() {
    let limiter = Limiter::in_memory();
    assert!(format!("{limiter:?}").contains("MemoryStore"));
    assert!(!format!("{limiter:?}").contains("DenyCache"));
}

/// The store behind the fallback is full of blocked keys.
#[tokio::test(start_paused = true)]
async fn a_full_fallback_admits_newcomers_and_denies_blocked_clients() {
    const KEYS: usize = 8;
    let memory = MemoryConfig::default().max_keys(KEYS);
    let bench = Bench::with(Resilience::default().instances(1).fallback(memory));
    let policy = policy("p", "10/day");
    bench.remote.set(Mood::Hangs);
    for key in 0..200_u64 {
        bench.pass(Duration::from_micros(1)).await;
        let decision = bench.check(policy.charge(key, 10)).await;
        assert_eq!(decision.source(), Source::Fallback);
        assert!(decision.is_allowed(), "{key} is new");
        assert!(!bench.check(policy.charge(key, 1)).await.is_allowed(), "{key} is blocked");
        // This one keeps trying.
        assert!(!bench.check(policy.charge(0_u64, 1)).await.is_allowed(), "after {key}");
    }
    let stats = bench.limiter.status().memory.expect("a fallback");
    assert_eq!((stats.keys, stats.evicted), (KEYS, 200 - KEYS as u64));
}

/// The fallback enforces the share of the quota that a charge has of its own, and what it admitted is
/// charged to the store under that quota when the store is back.
#[tokio::test(start_paused = true)]
async fn a_quota_of_its_own_is_shared_out_and_replayed() {
    let bench = Bench::new(2);
    let policy = policy("p", "1/day");
    let charge = |cost| policy.charge("alice", cost).with_quota("8/h".parse().unwrap());
    bench.remote.set(Mood::Down);
    let mut admitted = 0;
    for _ in 0..20 {
        let decision = bench.check(charge(1)).await;
        admitted += u32::from(decision.is_allowed());
    }
    assert_eq!(admitted, 4, "half of 8");
    bench.heal(&policy).await;
    let peek = bench.limiter.peek(charge(0)).await.unwrap();
    assert_eq!(peek.source(), Source::Shared);
    assert_eq!(peek.outcomes().next().unwrap().standing().remaining, 4);
}
