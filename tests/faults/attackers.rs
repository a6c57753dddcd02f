//! Attackers with more keys than anybody should have: what they cost Redis and this process, and
//! what others notice.

use std::{
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering::SeqCst},
    },
    time::Duration,
};

use plimsoll::{Limiter, Policy, RedisStore, store::Source};
use plimsoll_testing::{role::Role, servers::Server};
use tokio::{
    task::yield_now,
    time::{Instant, MissedTickBehavior, interval, sleep},
};

use crate::{figures::Waits, whole_machine};

/// The number of requests with one key.
const TRIES: u64 = 100_000;
/// The number of keys with one request each.
const KEYS: u64 = 1_000_000;
/// One key of this many is tried until it is denied. These keys are more than the deny cache holds.
const AGAIN: u64 = 32;
const TASKS: u64 = 64;
/// The maximum number of keys in the backlog of charges for Redis.
const MAX_BACKLOG: u64 = 100_000;
/// The allowed growth of this process, in MiB: the fallback, the deny cache, the backlog, the rest.
const ROOM: u64 = 64 + 3 + 40 + 21;

/// A process of its own has no memory left over from other tests.
#[tokio::test]
async fn a_million_keys() {
    let _whole = whole_machine().await;
    Role::start("attackers::attacked", &[]).end();
}

/// The role of that process.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "a role: another test starts it"]
async fn attacked() {
    let mut redis = Server::start();
    let limiter = Limiter::new(RedisStore::connect(&redis.url()).await.expect("a store"));
    let (others, control) = (Others::start(&limiter), Others::start(&Limiter::in_memory()));
    let (memory, there) = (resident(), used(&redis));
    let grown = || {
        let grown = resident().saturating_sub(memory) >> 10;
        assert!(grown <= ROOM, "{grown} MiB");
        grown
    };
    let report = |what: &str, figures: String| {
        let (others, control) = (others.waited(), control.waited());
        let grown = grown();
        eprintln!(
            "measured: {what}: {figures}, {grown} MiB more here, others waited {others}, with an \
             embedded store {control}"
        );
        let allowed = Duration::from_millis(50) + control.max.max(Duration::from_millis(5));
        assert!(others.p99 <= allowed, "{what}: {:?}", others.p99);
    };

    // One key costs Redis next to nothing, however often it is tried.
    redis.ask::<()>("CONFIG RESETSTAT");
    let start = Instant::now();
    hammer(&limiter).await;
    let (took, calls) = (start.elapsed(), self::calls(&redis).saturating_sub(others.asked()));
    report(&format!("one key {TRIES} times in {took:.1?}"), format!("{calls} commands"));
    // The admitted checks, two calls a second, and some more on a busy machine.
    assert!(calls <= 5 + 2 * took.as_secs() + 20, "{calls} commands");

    // Each key costs Redis one call, a denied key one more, and a key that was decided in this process
    // one more for its settlement.
    redis.ask::<()>("CONFIG RESETSTAT");
    let start = Instant::now();
    let here = attack(&limiter, 0..KEYS).await;
    let took = start.elapsed();
    let (calls, asked) = (self::calls(&redis), others.asked());
    let each = (used(&redis) - there) / keys(&redis);
    let figures = format!("{calls} commands, {each} bytes a key in Redis, {here} decided here");
    report(&format!("{KEYS} hostile keys in {took:.0?}"), figures);
    assert!(calls <= KEYS + KEYS / AGAIN * 2 + asked + here + 100, "{calls}");
    assert!(each <= 300, "{each} bytes a key");

    // The backlog of this process stays within its capacity.
    redis.kill();
    let start = Instant::now();
    let keys_here = 2 * MAX_BACKLOG;
    let here = attack(&limiter, KEYS..KEYS + keys_here).await;
    assert!(here >= keys_here, "Redis is down");
    let took = start.elapsed();
    report(
        &format!("{keys_here} hostile keys in {took:.0?}, no Redis"),
        format!("{here} decided here"),
    );

    // When Redis is back, the backlog is charged.
    redis.run();
    let start = Instant::now();
    while keys(&redis) < MAX_BACKLOG * 9 / 10 {
        assert!(start.elapsed() < Duration::from_secs(90), "{} of {MAX_BACKLOG}", keys(&redis));
        sleep(Duration::from_millis(50)).await;
    }
    let took = start.elapsed();
    report("Redis is back", format!("{} keys settled after {took:.1?}", keys(&redis)));
    let keyspace = redis.info("keyspace", "db0");
    let number = |name| keyspace.split(',').find_map(|part| part.strip_prefix(name));
    assert_eq!(number("keys="), number("expires="), "every key expires: {keyspace}");
}

/// Tries one key at a steady rate of 50,000 a second.
async fn hammer(limiter: &Limiter) {
    let policy = policy("hammered", "5/h");
    let mut ticks = interval(Duration::from_millis(1));
    for _ in 0..TRIES / 50 {
        ticks.tick().await;
        for _ in 0..50 {
            let _ = limiter.check(policy.charge("attacker", 1)).await.expect("decided");
        }
    }
}

/// Charges each of many keys once, and some again, over several tasks; how many checks Redis did
/// not decide.
async fn attack(limiter: &Limiter, keys: std::ops::Range<u64>) -> u64 {
    // With a unit left, so that the fallback may forget them when it is full.
    let policy = policy("attacked", "2/h");
    let tasks: Vec<_> = (0..TASKS)
        .map(|task| {
            let (limiter, policy) = (limiter.clone(), policy.clone());
            let keys = keys.clone().skip(task as usize).step_by(TASKS as usize);
            tokio::spawn(async move {
                let mut here = 0;
                for key in keys {
                    for _ in 0..1 + 2 * u64::from((key / TASKS).is_multiple_of(AGAIN)) {
                        let decision = limiter.check(policy.charge(key, 1)).await.expect("decided");
                        here += u64::from(decision.source() == Source::Fallback);
                        // A server would have to read the next request first.
                        yield_now().await;
                    }
                }
                here
            })
        })
        .collect();
    let mut here = 0;
    for task in tasks {
        here += task.await.expect("no panic");
    }
    here
}

/// Clients that behave, each with its own key, until this is dropped.
struct Others {
    waits: Arc<Mutex<Vec<Duration>>>,
    stop: Arc<AtomicBool>,
}

impl Others {
    fn start(limiter: &Limiter) -> Self {
        let others = Self { waits: Arc::default(), stop: Arc::default() };
        for number in 0..4_u64 {
            let (limiter, policy) = (limiter.clone(), policy("behaved", "1000/s"));
            let (waits, stop) = (Arc::clone(&others.waits), Arc::clone(&others.stop));
            tokio::spawn(async move {
                let mut ticks = interval(Duration::from_millis(10));
                ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
                while !stop.load(SeqCst) {
                    let due = ticks.tick().await;
                    let decision = limiter.check(policy.charge(number, 1)).await.expect("decided");
                    assert!(decision.is_allowed(), "nobody else spends this limit");
                    waits.lock().expect("no panic").push(due.elapsed());
                }
            });
        }
        others
    }

    fn asked(&self) -> u64 {
        self.waits.lock().expect("no panic").len() as u64
    }

    /// Returns the waits of the others since the last call.
    fn waited(&self) -> Waits {
        Waits::of(std::mem::take(&mut *self.waits.lock().expect("no panic")))
    }
}

impl Drop for Others {
    fn drop(&mut self) {
        self.stop.store(true, SeqCst);
    }
}

fn policy(name: &str, quota: &str) -> Policy {
    Policy::new(name, quota).expect("a name")
}

/// Resident memory of this process, in KiB.
fn resident() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").expect("Linux");
    let line = status.lines().find(|line| line.starts_with("VmRSS")).expect("a line");
    line.split_whitespace().nth(1).expect("a number").parse().expect("a number")
}

fn used(redis: &Server) -> u64 {
    redis.info("memory", "used_memory").parse().expect("a number")
}

fn keys(redis: &Server) -> u64 {
    redis.ask("DBSIZE")
}

/// Returns the number of calls of the script.
fn calls(redis: &Server) -> u64 {
    let calls = redis.info("commandstats", "cmdstat_evalsha");
    let calls = calls.strip_prefix("calls=").and_then(|rest| rest.split(',').next());
    calls.expect("it was asked").parse().expect("a number")
}
