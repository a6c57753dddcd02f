//! A real server: what the errors of its faults say, and what an attacker costs it.

use std::{
    process::Command,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering::SeqCst},
    },
    time::Duration,
};

use plimsoll::{
    Limiter, Policy, RedisStore, Resilience,
    error::{Effect, ErrorKind},
    redis::RedisConfig,
};
use plimsoll_testing::{
    policy,
    servers::{PATIENCE, Server},
};
use tokio::{task::JoinHandle, time::Instant};

/// Returns a configuration for tests that do not measure time.
fn patient() -> RedisConfig {
    RedisConfig::default().connect_timeout(PATIENCE).response_timeout(PATIENCE)
}

/// The result of one check.
#[derive(Debug, Clone, Copy)]
struct Sample {
    took: Duration,
    is_decided: bool,
}

/// Tasks that check at a steady rate, a thousand times a second in all.
struct Load {
    stop: Arc<AtomicBool>,
    samples: Arc<Mutex<Vec<Sample>>>,
    tasks: Vec<JoinHandle<()>>,
}

const TASKS: u64 = 16;

/// Tests that measure times take this lock, so that they do not disturb each other.
pub(crate) static ALONE: tokio::sync::Mutex<()> = tokio::sync::Mutex::const_new(());

impl Load {
    fn start(limiter: &Limiter, policy: &Policy) -> Self {
        let (stop, samples) = (Arc::new(AtomicBool::new(false)), Arc::new(Mutex::new(Vec::new())));
        let task = |number| {
            let (limiter, policy) = (limiter.clone(), policy.clone());
            let (stop, samples) = (Arc::clone(&stop), Arc::clone(&samples));
            tokio::spawn(async move {
                let mut tick = tokio::time::interval(Duration::from_millis(TASKS));
                while !stop.load(SeqCst) {
                    tick.tick().await;
                    let begun = Instant::now();
                    let decision = limiter.check(policy.charge(number, 1)).await.ok();
                    let sample = Sample { took: begun.elapsed(), is_decided: decision.is_some() };
                    samples.lock().expect("no panic").push(sample);
                }
            })
        };
        let tasks = (0..TASKS).map(task).collect();
        Self { stop, samples, tasks }
    }

    async fn stop(self) -> Vec<Sample> {
        self.stop.store(true, SeqCst);
        for task in self.tasks {
            task.await.expect("no panic");
        }
        std::mem::take(&mut *self.samples.lock().expect("no panic"))
    }
}

fn signal(pid: &str, signal: &str) {
    assert!(Command::new("kill").args([signal, pid]).status().expect("kill runs").success());
}

/// After an error of Redis the effect is none. After a timeout the effect is unknown.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn errors_say_whether_something_may_have_been_done() {
    let server = Server::start();
    let hasty = RedisConfig::default().response_timeout(Duration::from_millis(100));
    let limiter = async |config: RedisConfig| {
        // On a busy machine, connecting may take longer than the response timeout.
        for _ in 0..50 {
            let config = RedisConfig::url(server.url()).with_settings(config.clone());
            if let Ok(store) = RedisStore::connect_with(config).await {
                return Limiter::with_resilience(store, Resilience::none());
            }
        }
        panic!("no store");
    };
    let (limiter, hasty) = (limiter(patient()).await, limiter(hasty).await);
    let policy = policy("p", "5/h");
    let ask_by = async |limiter: &Limiter| {
        limiter.check(policy.charge("alice", 1)).await.map(|it| it.is_allowed())
    };
    let ask = async || ask_by(&limiter).await;
    assert!(ask().await.expect("it is well"));
    server.ask::<()>("CONFIG SET maxmemory 1");
    let error = ask().await.expect_err("out of memory");
    assert!(error.kind() == ErrorKind::OutOfMemory && error.effect() == Effect::None, "{error:?}");
    server.ask::<()>("CONFIG SET maxmemory 0");
    server.ask::<()>("REPLICAOF 127.0.0.1 1");
    let error = ask().await.expect_err("read-only");
    assert!(error.kind() == ErrorKind::ReadOnly && error.effect() == Effect::None, "{error:?}");
    server.ask::<()>("REPLICAOF NO ONE");
    let pid = server.info("server", "process_id");
    signal(&pid, "-STOP");
    let error = ask_by(&hasty).await.expect_err("late");
    assert!(error.kind() == ErrorKind::Unavailable && error.effect() != Effect::None, "{error:?}");
    signal(&pid, "-CONT");
}

/// One client as fast as it can, against a key that is spent: the server hears of it once a second,
/// and a client that behaves does not notice.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_attacker_costs_the_server_next_to_nothing() {
    let _alone = ALONE.lock().await;
    let server = Server::start();
    let store = RedisStore::connect_with(RedisConfig::url(server.url()).with_settings(patient()))
        .await
        .expect("a store");
    // A late server is no outage here: an instance without it would admit 5 more.
    let limiter =
        Limiter::with_resilience(store, Resilience::default().deadline(Duration::from_secs(20)));
    let policy = policy("p", "5/h");
    // The server knows the script.
    assert!(limiter.check(policy.charge("nobody", 1)).await.expect("decided").is_allowed());
    server.ask::<()>("CONFIG RESETSTAT");
    let stop = Arc::new(AtomicBool::new(false));
    let attack = {
        let (limiter, policy, stop) = (limiter.clone(), policy.clone(), Arc::clone(&stop));
        tokio::spawn(async move {
            let (mut denied, mut admitted) = (0_u64, 0);
            while !stop.load(SeqCst) || denied <= 50_000 {
                let decision = limiter.check(policy.charge("attacker", 1)).await.expect("decided");
                if decision.is_allowed() {
                    admitted += 1
                } else {
                    denied += 1
                }
                if denied.is_multiple_of(64) {
                    tokio::task::yield_now().await;
                }
            }
            (denied, admitted)
        })
    };
    let start = Instant::now();
    let load = Load::start(&limiter, &Policy::new("q", "1000/s").unwrap());
    tokio::time::sleep(Duration::from_secs(2)).await;
    stop.store(true, SeqCst);
    let (denied, admitted) = attack.await.expect("no panic");
    let behaved = load.stop().await;
    let took = start.elapsed();
    let stats: String = server.ask("INFO commandstats");
    let calls =
        stats.split("cmdstat_evalsha:calls=").nth(1).and_then(|rest| rest.split(',').next());
    let calls: u64 = calls.expect("it was asked").parse().expect("a number");
    // On a busy machine some of theirs may have been decided here.
    let cost = calls.saturating_sub(behaved.len() as u64);
    let mut waits: Vec<_> = behaved.iter().map(|sample| sample.took).collect();
    waits.sort_unstable();
    eprintln!(
        "measured: {denied} denials of one key in {took:.1?} cost {cost} commands; others waited {:?} (p99)",
        waits[waits.len() * 99 / 100],
    );
    assert_eq!(admitted, 5);
    // The admitted checks, the first denial, and a question a second.
    assert!(cost <= 5 + 1 + 1 + took.as_secs(), "{cost} in {took:?}");
    assert!(behaved.iter().all(|sample| sample.is_decided));
}
