//! Real faults of a real server, under steady load: how long requests wait, what they are told, and
//! how soon it is over.

use std::{
    cell::RefCell,
    process::Command,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering::SeqCst},
    },
    time::Duration,
};

use tokio::{task::JoinHandle, time::Instant};
use tollgate::{
    ErrorKind, Limiter, Policy,
    store::{RedisConfig, RedisStore, Resilience, Source},
};

use crate::{
    proxy::{Proxy, Spoil},
    servers::Server,
    support::policy,
};

/// What one check came to.
#[derive(Debug, Clone, Copy)]
struct Sample {
    begun: Instant,
    took: Duration,
    /// Who decided; `None` if nobody did.
    source: Option<Source>,
    admitted: bool,
}

/// Tasks that check at a steady rate, each a thousand times a second in all.
struct Load {
    stop: Arc<AtomicBool>,
    samples: Arc<Mutex<Vec<Sample>>>,
    tasks: Vec<JoinHandle<()>>,
}

const TASKS: u64 = 16;

/// Who measures times has the machine alone.
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
                    let sample = Sample {
                        begun,
                        took: begun.elapsed(),
                        source: decision.as_ref().map(|decision| decision.source()),
                        admitted: decision.is_some_and(|decision| decision.is_allowed()),
                    };
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
        let mut samples = std::mem::take(&mut *self.samples.lock().expect("no panic"));
        samples.sort_by_key(|sample| sample.begun);
        samples
    }
}

/// Injects a fault for a second under load, and judges what became of the checks.
async fn bear(what: &str, url: &str, begin: impl AsyncFnOnce(), end: impl AsyncFnOnce()) {
    const LIMIT: u64 = 200;
    let _alone = ALONE.lock().await;
    let store = RedisStore::connect(url).await.expect("a store");
    let limiter = Limiter::with(store, Resilience::default().instances(2));
    let policy = policy("p", &format!("{LIMIT}/h token-bucket({LIMIT})"));
    let load = Load::start(&limiter, &policy);
    tokio::time::sleep(Duration::from_millis(500)).await;
    let began = Instant::now();
    begin().await;
    tokio::time::sleep(Duration::from_secs(1)).await;
    end().await;
    let ended = Instant::now();
    tokio::time::sleep(Duration::from_millis(2_500)).await;
    let samples = load.stop().await;

    let mut waits: Vec<Duration> = samples.iter().map(|sample| sample.took).collect();
    waits.sort_unstable();
    let quantile = |part: f64| waits[((waits.len() - 1) as f64 * part) as usize];
    let errors = samples.iter().filter(|sample| sample.source.is_none()).count();
    let fell_back = |sample: &&Sample| sample.source == Some(Source::Fallback);
    let degraded = samples.iter().find(fell_back).map(|sample| sample.begun + sample.took);
    let last = samples.iter().rfind(fell_back).map(|sample| sample.begun);
    let recovery = last.map_or(Duration::ZERO, |last| last.saturating_duration_since(ended));
    eprintln!(
        "measured: {what}: {} checks, p50 {:?}, p99 {:?}, max {:?}, {errors} errors, degraded after \
         {:?}, recovered {recovery:?} after the end",
        samples.len(),
        quantile(0.5),
        quantile(0.99),
        waits[waits.len() - 1],
        degraded.map(|degraded| degraded.saturating_duration_since(began)),
    );
    assert!(degraded.is_some(), "{what}: the fault was felt");
    assert_eq!(errors, 0, "{what}");
    // The deadline, and what a busy machine adds.
    assert!(quantile(0.99) < Duration::from_millis(50 + 50), "{what}: {:?}", quantile(0.99));
    assert!(recovery < Duration::from_secs(2), "{what}: {recovery:?}");
    // Each key has the limit, this instance's half of it, and what refills meanwhile; and what a
    // server forgets is admitted again.
    let bound = TASKS * (LIMIT * 2 + LIMIT / 2 + 1);
    let admitted = samples.iter().filter(|sample| sample.admitted).count() as u64;
    assert!(admitted <= bound, "{what}: {admitted} of {bound}");
}

fn signal(pid: &str, signal: &str) {
    assert!(Command::new("kill").args([signal, pid]).status().expect("kill runs").success());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn killed_and_started_again() {
    let server = RefCell::new(Server::start());
    let url = server.borrow().url();
    let (kill, start) = (async || server.borrow_mut().kill(), async || server.borrow_mut().run());
    bear("kill -9", &url, kill, start).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn stopped_and_continued() {
    let server = Server::start();
    let pid = server.info("server", "process_id");
    let (stop, go_on) = (async || signal(&pid, "-STOP"), async || signal(&pid, "-CONT"));
    bear("SIGSTOP", &server.url(), stop, go_on).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn asleep() {
    let server = Server::start_with(&["--enable-debug-command", "yes"]);
    let client = server.client();
    let sleep = async move || {
        std::thread::spawn(move || {
            let mut connection = client.get_connection().expect("a connection");
            redis::cmd("DEBUG").arg("SLEEP").arg("1").query::<()>(&mut connection).expect("slept");
        });
    };
    bear("DEBUG SLEEP", &server.url(), sleep, async || ()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn out_of_memory() {
    let server = Server::start();
    let fill = async || server.ask::<()>("CONFIG SET maxmemory 1");
    let empty = async || server.ask::<()>("CONFIG SET maxmemory 0");
    bear("maxmemory", &server.url(), fill, empty).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn demoted() {
    let server = Server::start();
    let (demote, promote) = (
        async || server.ask::<()>("REPLICAOF 127.0.0.1 1"),
        async || server.ask::<()>("REPLICAOF NO ONE"),
    );
    bear("made a replica", &server.url(), demote, promote).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn spoilt_on_the_way() {
    for how in [Spoil::Delay, Spoil::Swallow, Spoil::Cut, Spoil::Truncate, Spoil::Corrupt] {
        let server = Server::start();
        let proxy = Proxy::start(server.port).await;
        let (spoil, spare) = (async || proxy.spoil(how), async || proxy.spoil(Spoil::Nothing));
        bear(&format!("{how:?}"), &proxy.url(), spoil, spare).await;
    }
}

/// What was refused has certainly not been done; of what was not answered nobody knows.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn errors_say_whether_something_may_have_been_done() {
    let server = Server::start();
    let config = RedisConfig::default().response_timeout(Duration::from_millis(100));
    let store = RedisStore::connect_with(&server.url(), config).await.expect("a store");
    let limiter = Limiter::with(store, Resilience::none());
    let policy = policy("p", "5/h");
    let ask = async || limiter.check(policy.charge("alice", 1)).await.map(|it| it.is_allowed());
    assert!(ask().await.expect("it is well"));
    server.ask::<()>("CONFIG SET maxmemory 1");
    let error = ask().await.expect_err("out of memory");
    assert!(error.kind() == ErrorKind::OutOfMemory && !error.is_uncertain(), "{error:?}");
    server.ask::<()>("CONFIG SET maxmemory 0");
    server.ask::<()>("REPLICAOF 127.0.0.1 1");
    let error = ask().await.expect_err("read-only");
    assert!(error.kind() == ErrorKind::ReadOnly && !error.is_uncertain(), "{error:?}");
    server.ask::<()>("REPLICAOF NO ONE");
    let pid = server.info("server", "process_id");
    signal(&pid, "-STOP");
    let error = ask().await.expect_err("late");
    assert!(error.kind() == ErrorKind::Unavailable && error.is_uncertain(), "{error:?}");
    signal(&pid, "-CONT");
}

/// One client as fast as it can, against a key that is spent: the server hears of it once a second,
/// and a client that behaves does not notice.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_attacker_costs_the_server_next_to_nothing() {
    let _alone = ALONE.lock().await;
    let server = Server::start();
    let limiter = Limiter::new(RedisStore::connect(&server.url()).await.expect("a store"));
    let policy = policy("p", "5/h");
    // The server knows the script.
    assert!(limiter.check(policy.charge("nobody", 1)).await.expect("decided").is_allowed());
    server.ask::<()>("CONFIG RESETSTAT");
    let stop = Arc::new(AtomicBool::new(false));
    let attack = {
        let (limiter, policy, stop) = (limiter.clone(), policy.clone(), Arc::clone(&stop));
        tokio::spawn(async move {
            let (mut denied, mut admitted) = (0_u64, 0);
            while !stop.load(SeqCst) {
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
    let load = Load::start(&limiter, &Policy::new("q", "1000/s".parse().unwrap()).unwrap());
    tokio::time::sleep(Duration::from_secs(2)).await;
    let behaved = load.stop().await;
    stop.store(true, SeqCst);
    let (denied, admitted) = attack.await.expect("no panic");
    let stats: String = server.ask("INFO commandstats");
    let calls =
        stats.split("cmdstat_evalsha:calls=").nth(1).and_then(|rest| rest.split(',').next());
    let calls: u64 = calls.expect("it was asked").parse().expect("a number");
    // On a busy machine some of theirs may have been decided here.
    let cost = calls.saturating_sub(behaved.len() as u64);
    let mut waits: Vec<_> = behaved.iter().map(|sample| sample.took).collect();
    waits.sort_unstable();
    eprintln!(
        "measured: {denied} denials of one key in 2 s cost {cost} commands; others waited {:?} (p99)",
        waits[waits.len() * 99 / 100],
    );
    assert_eq!(admitted, 5);
    assert!(denied > 50_000, "{denied}");
    // What was admitted, the first denial, and a question a second.
    assert!(cost <= 5 + 1 + 3, "{cost}");
    assert!(behaved.iter().all(|sample| sample.source.is_some()));
}
