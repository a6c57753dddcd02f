//! Units in flight in Redis, while Redis loses its data, answers are lost, and limits change.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering::SeqCst},
    },
    time::{Duration, SystemTime},
};

use plimsoll::{
    Charge, Decision, Limiter, MemoryStore, Policy, Quota, RedisStore, Resilience,
    clock::ManualClock, limiter::Reserved, memory::MemoryConfig, redis::RedisConfig,
};
use plimsoll_testing::{
    calm::{eventually, repeated},
    proxy::Proxy,
    seed::{self, Random},
    servers::{Cluster, Server},
};
use tokio::{
    task::JoinSet,
    time::{Instant, sleep, timeout},
};

use crate::{patient, policy};

const EXPIRY: Duration = Duration::from_secs(1);

async fn limiter(config: RedisConfig) -> Limiter {
    Limiter::with_resilience(
        RedisStore::connect_with(config).await.expect("a store"),
        Resilience::none(),
    )
}

async fn on(url: &str) -> Limiter {
    limiter(RedisConfig::url(url).with_settings(patient())).await
}

async fn free(limiter: &Limiter, charge: Charge<'_>) -> u64 {
    let peek = limiter.peek(charge).await.expect("an answer");
    peek.binding().expect("a charge").standing().remaining
}

/// Waits until this number of units is free, for at most `within`. A turn of the loop counts as [`TURN`] at most:
/// while this process or Redis stands still, nothing can be released.
async fn becomes_free(limiter: &Limiter, policy: &Policy, units: u64, within: Duration) {
    /// The longest turn on a slow machine.
    const TURN: Duration = Duration::from_millis(30);
    let mut waited = Duration::ZERO;
    loop {
        let start = Instant::now();
        let free = free(limiter, policy.charge("all", 0)).await;
        if free == units {
            return;
        }
        assert!(waited < within, "{free} units are free, not {units}");
        sleep(Duration::from_millis(5)).await;
        waited += start.elapsed().min(TURN);
    }
}

/// A reservation that is kept for more than ten expiries holds its unit all the time.
#[tokio::test]
async fn a_reservation_outlasts_many_expiries() {
    for run in 1.. {
        let Err(pause) = outlast_many_expiries().await else { return };
        assert!(run < 10, "{pause}");
        repeated(&pause);
    }
}

/// Returns an error if the machine was too late to judge.
async fn outlast_many_expiries() -> Result<(), String> {
    let server = Server::start();
    let (holder, other) = (on(&server.url()).await, on(&server.url()).await);
    let (jobs, rate) = (policy("jobs", "2 concurrent expires(1s)"), policy("rate", "9/min"));
    let held = holder.reserve([jobs.charge("all", 2), rate.charge("all", 1)]);
    let Reserved::Held(held) = held.await.expect("an answer") else { panic!("2 units are free") };
    let (start, mut last) = (Instant::now(), Instant::now());
    while start.elapsed() < EXPIRY * 21 / 2 {
        let decision = other.check(jobs.charge("all", 1)).await.expect("an answer");
        if last.elapsed() > EXPIRY / 4 {
            // A renewal may have been late, because this process or Redis stood still.
            return Err(format!("nothing was done for {:?}", last.elapsed()));
        }
        last = Instant::now();
        assert!(!decision.is_allowed(), "after {:?}", start.elapsed());
        sleep(Duration::from_millis(7)).await;
    }
    // The rate keeps its unit, and the units in flight are free at once.
    drop(held);
    becomes_free(&other, &jobs, 2, EXPIRY / 4).await;
    assert_eq!(free(&other, rate.charge("all", 0)).await, 8);
    Ok(())
}

/// The units of the work that goes on are charged again by the next renewal.
#[tokio::test]
async fn redis_may_lose_the_units_in_flight() {
    let server = Server::start();
    let limiter = on(&server.url()).await;
    let jobs = policy("jobs", "3 concurrent expires(1s)");
    let mut held = Vec::new();
    for _ in 0..3 {
        held.push(limiter.reserve(jobs.charge("all", 1)).await.expect("an answer"));
    }
    server.ask::<()>("FLUSHALL");
    drop(held.pop());
    becomes_free(&limiter, &jobs, 1, EXPIRY).await;
    server.ask::<()>("SCRIPT FLUSH");
    drop(held.pop());
    becomes_free(&limiter, &jobs, 2, EXPIRY / 4).await;
    server.ask::<()>("FLUSHALL");
    drop(held);
    limiter.close().await.expect("an answer");
    assert_eq!(free(&limiter, jobs.charge("all", 0)).await, 3);
    server.assert_all_keys_expire();
}

/// Replies are lost, and so are requests. The units of both are free after the expiry.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn lost_answers_leak_no_unit_beyond_the_expiry() {
    let server = Server::start();
    let (proxy, url) = Proxy::start(server.port).await;
    let store = RedisStore::connect(&url).await.expect("a store");
    let limiter = Limiter::with_resilience(store, Resilience::default().without_fallback());
    let jobs = policy("jobs", "8 concurrent expires(1s)");
    let seed = seed::seed("lost answers");
    let [admitted, lost] = [(); 2].map(|()| Arc::<AtomicU64>::default());
    let is_over = Arc::<AtomicBool>::default();
    let mut tasks = JoinSet::new();
    for task in 0..16 {
        let (limiter, jobs, is_over) = (limiter.clone(), jobs.clone(), Arc::clone(&is_over));
        let (admitted, lost) = (Arc::clone(&admitted), Arc::clone(&lost));
        let mut random = Random(seed ^ task);
        tasks.spawn(async move {
            while !is_over.load(SeqCst) {
                match limiter.reserve(jobs.charge("all", 1)).await {
                    Ok(Reserved::Held(held)) => {
                        admitted.fetch_add(1, SeqCst);
                        sleep(Duration::from_millis(random.below(10))).await;
                        drop(held);
                    }
                    Ok(Reserved::Denied(_)) => sleep(Duration::from_millis(2)).await,
                    Err(_) => {
                        lost.fetch_add(1, SeqCst);
                        sleep(Duration::from_millis(10)).await;
                    }
                }
            }
        });
    }
    let counts = || (admitted.load(SeqCst), lost.load(SeqCst));
    for cuts in 1.. {
        sleep(Duration::from_millis(130)).await;
        proxy.cut();
        let (admitted, lost) = counts();
        if cuts >= 20 && admitted > 100 && lost > 0 {
            break;
        }
        assert!(cuts < 400, "{admitted} admitted, {lost} lost");
    }
    is_over.store(true, SeqCst);
    tasks.join_all().await;
    becomes_free(&on(&server.url()).await, &jobs, 8, EXPIRY * 5 / 4).await;
}

#[expect(clippy::disallowed_methods, reason = "the quota of a key ends by wall time")]
fn after(duration: Duration) -> SystemTime {
    SystemTime::now() + duration
}

/// Limits that change, rates, a trial and the quotas of keys, mixed in checks of several tasks: the work in
/// flight is never more than the highest limit, and all units are free at the end.
async fn storm(config: impl AsyncFn() -> RedisConfig, name: &'static str) {
    const HIGHEST: u64 = 6;
    let quota = |limit| Quota::concurrent(limit).expires(3 * EXPIRY).expect("in bounds");
    let limiters = [limiter(config().await).await, limiter(config().await).await];
    let jobs = Policy::new("jobs", quota(HIGHEST)).expect("valid");
    let rate = policy("rate", "100000/s token-bucket(100000)");
    // Four keys have 400 units, and the tasks make about 1,700 checks. However fast they are, the trial allows the
    // first ones, of which the live rules allow some, and denies most of the others.
    let tried = policy("tried", "100/h token-bucket(100)");
    let seed = seed::seed(name);
    let in_flight = Arc::<AtomicU64>::default();
    let mut tasks = JoinSet::new();
    for task in 0..12_usize {
        let (limiter, jobs) = (limiters[task % 2].clone(), jobs.clone());
        let (rate, tried, in_flight) = (rate.clone(), tried.clone(), Arc::clone(&in_flight));
        let mut random = Random(seed ^ task as u64);
        tasks.spawn(async move {
            let (mut most, mut admitted) = (0, 0);
            for _ in 0..150 {
                // Other keys are in other slots of a cluster.
                let other = ["all", "x", "y", "z"][random.below(4) as usize];
                let charges = [
                    rate.charge(other, 1),
                    jobs.charge("all", 1),
                    tried.charge(other, 1).trial(),
                    rate.charge("t", 1),
                ];
                let patience = random.one(&[0, 1, 2, 10_000, 10_000, 10_000]);
                let check = limiter.reserve(charges);
                let Ok(answer) = timeout(Duration::from_millis(patience), check).await else {
                    continue;
                };
                let Reserved::Held(held) = answer.expect("an answer") else {
                    sleep(Duration::from_millis(random.below(5))).await;
                    continue;
                };
                admitted += 1;
                let now = 1 + in_flight.fetch_add(1, SeqCst);
                most = most.max(now);
                sleep(Duration::from_millis(random.below(6))).await;
                in_flight.fetch_sub(1, SeqCst);
                match random.below(4) {
                    0 => drop(held.refund().await.expect("an answer")),
                    1 => held.settle(3).await.expect("an answer"),
                    _ => drop(held),
                }
            }
            (most, admitted)
        });
    }
    let mut random = Random(seed);
    let far = after(Duration::from_secs(3_600));
    let mut results = Vec::new();
    // The tasks make use of the highest limit before it changes for the first time.
    let is_used = async || in_flight.load(SeqCst) > HIGHEST / 2;
    eventually("many units are in flight", is_used).await;
    while !tasks.is_empty() {
        match random.below(4) {
            0 => jobs.set_quota(quota(random.one(&[1, 2, HIGHEST]))),
            1 => jobs.set_key_quota("all", quota(random.one(&[1, 3])), far).expect("there is room"),
            2 => drop(jobs.remove_key_quota("all")),
            // A quota that ends while checks are on their way.
            _ => {
                let soon = after(Duration::from_millis(3));
                jobs.set_key_quota("all", quota(2), soon).expect("there is room");
            }
        }
        let next = timeout(Duration::from_millis(random.below(20)), tasks.join_next()).await;
        results.extend(next.ok().flatten());
    }
    jobs.set_quota(quota(HIGHEST));
    jobs.remove_key_quota("all");
    let results = results.into_iter().map(|it| it.expect("no panic"));
    let (most, admitted) = results.fold((0, 0), |sum, it| (sum.0.max(it.0), sum.1 + it.1));
    assert!(most <= HIGHEST && most > HIGHEST / 2, "{most} in flight");
    assert!(admitted > 50, "{admitted} admitted");
    // No unit waits for its expiry, except units of checks whose answer nothing has awaited.
    becomes_free(&limiters[0], &jobs, HIGHEST, EXPIRY).await;
    let counts = tried.trial_counts();
    assert!(counts.allowed_by_both > 0 && counts.allowed_by_live_only > 0, "{counts:?}");
    for limiter in limiters {
        let decision = limiter.check(jobs.charge("all", HIGHEST + 1)).await.expect("an answer");
        assert!(matches!(decision, Decision::Denied(denied) if denied.is_over_capacity()));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn mixed_checks_leak_nothing_on_a_server() {
    let server = Server::start();
    let url = server.url();
    storm(async || RedisConfig::url(url.as_str()).with_settings(patient()), "storm").await;
    server.assert_all_keys_expire();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn mixed_checks_leak_nothing_on_a_cluster() {
    let cluster = Cluster::start();
    let urls = cluster.urls();
    let config = async || RedisConfig::cluster(urls.clone()).with_settings(patient());
    storm(config, "storm on a cluster").await;
}

/// Releasing units together, from logs of all lengths, releases the same units as the embedded store does one by
/// one.
#[tokio::test]
async fn units_released_together_are_the_same_as_in_the_embedded_store() {
    let server = Server::start();
    let mut longest = 0;
    for (number, history) in seed::histories("units released together", 40).enumerate() {
        let mut random = Random(history.seed);
        let clock = ManualClock::at(1_700_000_000_000_000);
        let config = patient().prefix(format!("h{number}"));
        let config = RedisConfig::url(server.url()).with_settings(config);
        let store = RedisStore::connect_with(config).await.expect("a store");
        let shared =
            Limiter::with_resilience(store.with_test_clock(clock.clone()), Resilience::none());
        let memory = MemoryConfig::default().clock(clock.clone());
        let embedded = Limiter::new(MemoryStore::new(memory));
        let (mut limit, seconds) =
            (random.one(&[3, 40, 300, 5_000, 1_000_000]), random.one(&[60, 3_600]));
        let mut most = random.one(&[4, 30, 90, 250]) as usize;
        if number == 0 {
            // At least this one has a long log.
            (limit, most) = (5_000, 250);
        }
        let expiry = Duration::from_secs(seconds);
        let quota = Quota::concurrent(limit).expires(expiry).expect("in bounds");
        let jobs = Policy::new("jobs", quota).expect("valid");
        let keys = 1 + random.below(2);
        let mut held = Vec::new();
        for _ in 0..60 {
            let micros = random.one(&[0, 1, 7, 1_000, 1_000_000, seconds * 90_000]);
            clock.advance(Duration::from_micros(random.below(micros + 1)));
            for _ in 0..random.below(12) {
                let (key, cost) = (random.below(keys), 1 + random.below(2));
                let charge = || jobs.charge(key, cost);
                let both = [&shared, &embedded].map(|limiter| limiter.reserve(charge()));
                let [one, other] = both;
                match (one.await.expect("an answer"), other.await.expect("an answer")) {
                    (Reserved::Held(one), Reserved::Held(other)) => held.push((one, other)),
                    (Reserved::Denied(_), Reserved::Denied(_)) => {}
                    differ => panic!("{:#x}: {differ:?}", history.seed),
                }
                clock.advance(Duration::from_micros(random.below(3)));
            }
            // The oldest, the newest, or some of them.
            let released = match random.below(4) {
                _ if held.len() < most / 2 => 0..0,
                0 => 0..held.len().min(20),
                1 => held.len().saturating_sub(20)..held.len(),
                _ => {
                    let start = random.below(held.len() as u64) as usize;
                    start..held.len().min(start + random.below(30) as usize)
                }
            };
            drop(held.drain(released));
            if !held.is_empty() {
                let (one, other) = held.remove(random.below(held.len() as u64) as usize);
                let (one, other) = (one.refund().await, other.refund().await);
                let units = (one.expect("an answer"), other.expect("an answer"));
                assert_eq!(units.0, units.1, "{:#x}", history.seed);
            }
            shared.close().await.expect("an answer");
            longest = longest.max(held.len());
            for key in 0..keys {
                let [one, other] = [&shared, &embedded].map(|it| it.peek(jobs.charge(key, 1)));
                let (one, other) = (one.await.expect("an answer"), other.await.expect("an answer"));
                let standings = [one, other].map(|it| *it.binding().expect("one").standing());
                assert_eq!(standings[0], standings[1], "{:#x}", history.seed);
            }
        }
    }
    assert!(longest > 100, "{longest}");
}

#[tokio::test]
async fn a_log_without_units_is_deleted() {
    let server = Server::start();
    let limiter = on(&server.url()).await;
    let jobs = policy("jobs", "1000 concurrent expires(30s)");
    let mut held = Vec::new();
    for _ in 0..200 {
        held.push(limiter.reserve(jobs.charge("all", 1)).await.expect("an answer"));
    }
    drop(held.drain(50..));
    limiter.close().await.expect("an answer");
    assert_eq!((free(&limiter, jobs.charge("all", 0)).await, server.keys().len()), (950, 1));
    drop(held);
    limiter.close().await.expect("an answer");
    assert_eq!(server.keys().len(), 0, "a long log");
    // One line with the key, and several.
    for lines in [1, 2] {
        let mut held = Vec::new();
        for _ in 0..lines {
            held.push(limiter.reserve(jobs.charge("all", 1)).await.expect("an answer"));
        }
        assert_eq!(server.keys().len(), 1);
        drop(held);
        limiter.close().await.expect("an answer");
        assert_eq!(server.keys().len(), 0, "a short log of {lines} lines");
    }
}

/// The numbers of a long log that repeat what its records say, and the copy of its oldest block. Most of them
/// only save a search, so standings would not show that one is wrong.
#[tokio::test]
async fn units_released_together_leave_a_log_whose_numbers_agree() {
    /// The position of the newest block, of the copy of the oldest one, and of the ring.
    const BLOCKS: [usize; 3] = [78, 158, 238];
    let server = Server::start();
    let clock = ManualClock::at(1_700_000_000_000_000);
    let config = RedisConfig::url(server.url()).with_settings(patient().plain_keys(true));
    let store = RedisStore::connect_with(config).await.expect("a store");
    let limiter =
        Limiter::with_resilience(store.with_test_clock(clock.clone()), Resilience::none());
    let jobs = policy("jobs", "1000 concurrent expires(60s)");
    let mut held = Vec::new();
    for _ in 0..100 {
        clock.advance(Duration::from_micros(1));
        held.push(limiter.reserve(jobs.charge("all", 1)).await.expect("an answer"));
    }
    let mut connection = server.client().get_connection().expect("a connection");
    let mut lengths = Vec::new();
    // Some of the oldest block and of later ones, some in the middle, and the newest with some before it.
    for released in [1..12, 30..50, 58..69] {
        drop(held.drain(released));
        limiter.close().await.expect("an answer");
        let key = server.keys().pop().expect("a log");
        let state: Vec<u8> = redis::cmd("GET").arg(&key).query(&mut connection).expect("a state");
        let number = |at: usize, bytes: usize| {
            let bytes = state[at..at + bytes].iter().rev();
            bytes.fold(0_usize, |number, byte| number << 8 | usize::from(*byte))
        };
        let (head, tail, places) = (number(29, 6), number(35, 6), number(41, 4));
        let (before_last, last_total, head_total) = (number(52, 4), number(63, 4), number(74, 4));
        let (oldest, newest) = (head / 8, (tail - 1) / 8);
        let in_ring = |block: usize| BLOCKS[2] + block % places * 80;
        let total = |record: usize| {
            let block = record / 8;
            let at = if block == newest { BLOCKS[0] } else { in_ring(block) };
            let first = number(at + 6, 4);
            if record.is_multiple_of(8) {
                first
            } else {
                first + number(at + record % 8 * 10 + 6, 4)
            }
        };
        assert!(oldest < newest, "a long log");
        assert_eq!(before_last, total(tail - 2), "before the newest record");
        assert_eq!(last_total, total(tail - 1), "the newest record");
        assert_eq!(head_total, total(head), "the oldest record");
        let (copy, block) = (BLOCKS[1], in_ring(oldest));
        // The records of the block before the oldest one have left.
        let records = head % 8 * 10..80;
        let of = |at: usize| &state[at + records.start..at + records.end];
        assert_eq!(of(copy), of(block), "the copy of the oldest block");
        assert_eq!(last_total - number(25, 4), held.len(), "the total before the oldest record");
        lengths.push(tail - head);
    }
    assert!(lengths.iter().all(|records| *records > 41), "{lengths:?}");
}
