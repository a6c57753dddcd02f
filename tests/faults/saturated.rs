//! A server whose process is late: one core, and more connections than it can serve, while its Redis
//! is healthy.

use std::{
    collections::BTreeMap,
    env,
    net::SocketAddr,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering::SeqCst},
    },
    thread::{self, JoinHandle},
    time::Duration,
};

use axum::{Router, middleware::map_response, routing::get};
use plimsoll::{
    Limiter, OnFailure, Policy, Quota, RateLimitLayer, RedisStore, Rule, by, store::BreakerStatus,
};
use plimsoll_testing::{
    calm::repeated,
    fault_row::FaultRow,
    role::{Role, end_of_input},
    servers::Server,
    web,
};
use tokio::{
    runtime::Builder,
    time::{Instant, sleep},
};

use crate::{figures::Waits, server::show_source, whole_machine};

/// Connections with a request in flight each.
const CONNECTIONS: u64 = 2_000;
/// The number of keys of the load. Each request is charged to one of them.
const KEYS: u64 = 20;
/// The processor time that the application itself takes for a request.
const WORK: Duration = Duration::from_micros(100);
const LASTS: Duration = Duration::from_secs(2);

/// No store, and no layer.
const CONTROL: &str = "none";
const STORE: &str = "PLIMSOLL_TEST_SATURATED_STORE";
const ON_FAILURE: &str = "PLIMSOLL_TEST_ON_FAILURE";
const QUOTA: &str = "PLIMSOLL_TEST_QUOTA";
const THREADS: &str = "PLIMSOLL_TEST_THREADS";
const TARGET: &str = "PLIMSOLL_TEST_SATURATED";

/// The role of the server's process.
#[test]
#[ignore = "a role: another test starts it"]
fn saturated_server() {
    let store = env::var(STORE).expect("a role");
    let mut runtime = match env::var(THREADS).expect("set").as_str() {
        "current" => Builder::new_current_thread(),
        count => {
            let mut builder = Builder::new_multi_thread();
            builder.worker_threads(count.parse().expect("a number"));
            builder
        }
    };
    runtime.enable_all().build().expect("a runtime").block_on(serve(&store));
}

async fn serve(store: &str) {
    let app = Router::new().route("/", get(work));
    if store == CONTROL {
        let address = tokio::spawn(web::serve(app)).await.expect("no panic");
        println!("\nlistening on {address}");
        return end_of_input().await;
    }
    let on_failure = match env::var(ON_FAILURE).expect("set").as_str() {
        "deny" => OnFailure::Deny,
        "allow" => OnFailure::Allow,
        _ => OnFailure::Local,
    };
    let quota: Quota = env::var(QUOTA).expect("set").parse().expect("a quota");
    let limiter = Limiter::new(RedisStore::connect(store).await.expect("a store"));
    let rule = Rule::new(Policy::new("api", quota).expect("a name"), by::header("x-api-key"));
    let layer = RateLimitLayer::new(limiter.clone(), rule.on_failure(on_failure)).visible();
    let app = app.layer(layer).layer(map_response(show_source));
    let address = tokio::spawn(web::serve(app)).await.expect("no panic");
    println!("\nlistening on {address}");
    let opened = Arc::new(AtomicBool::new(false));
    let watch = tokio::spawn({
        let (limiter, opened) = (limiter.clone(), Arc::clone(&opened));
        async move {
            loop {
                if limiter.status().breaker != Some(BreakerStatus::Closed) {
                    opened.store(true, SeqCst);
                }
                sleep(Duration::from_millis(5)).await;
            }
        }
    });
    end_of_input().await;
    watch.abort();
    println!("\nstatus {:?}", limiter.status());
    println!("opened {}", opened.load(SeqCst));
}

async fn work() -> &'static str {
    let start = Instant::now();
    while start.elapsed() < WORK {
        std::hint::spin_loop();
    }
    "hello"
}

/// The role of the process of the load.
#[tokio::test]
#[ignore = "a role: another test starts it"]
async fn saturating_load() {
    let target = env::var(TARGET).expect("a role");
    let address: SocketAddr = target.parse().expect("an address");
    let stop = Arc::new(AtomicBool::new(false));
    let counts: Arc<Mutex<BTreeMap<String, u64>>> = Arc::default();
    let waits: Arc<Mutex<Vec<Duration>>> = Arc::default();
    let (mut clients, mut tasks) = (Vec::new(), Vec::new());
    for _ in 0..CONNECTIONS {
        clients.push(web::http1(address).await);
    }
    for (number, mut client) in clients.into_iter().enumerate() {
        let (stop, counts, waits) = (Arc::clone(&stop), Arc::clone(&counts), Arc::clone(&waits));
        tasks.push(tokio::spawn(async move {
            let key = format!("client-{}", number as u64 % KEYS);
            while !stop.load(SeqCst) {
                let start = Instant::now();
                let reply = client.get_with("/", &[("x-api-key", &key)]).await;
                waits.lock().unwrap().push(start.elapsed());
                let source = reply.headers.get("x-source").and_then(|it| it.to_str().ok());
                let source = source.unwrap_or("none");
                let mut counts = counts.lock().unwrap();
                *counts.entry(format!("{} {source}", reply.status)).or_default() += 1;
                if reply.status == 200 {
                    *counts.entry(format!("admitted {key}")).or_default() += 1;
                }
            }
        }));
    }
    println!("\nloading");
    end_of_input().await;
    stop.store(true, SeqCst);
    for task in tasks {
        task.await.expect("no panic");
    }
    println!();
    for wait in waits.lock().unwrap().iter() {
        println!("wait {}", wait.as_micros());
    }
    for (what, count) in counts.lock().unwrap().iter() {
        println!("count {count} {what}");
    }
}

/// The counts of the clients and of the server after a run.
#[derive(Debug)]
struct Figures {
    /// By status and source.
    counts: BTreeMap<String, u64>,
    /// The most that was admitted under one key.
    admitted: u64,
    opened: bool,
}

impl Figures {
    fn count(&self, is_counted: impl Fn(&str) -> bool) -> u64 {
        let counts = self.counts.iter().filter(|(what, _)| is_counted(what));
        counts.map(|(_, count)| count).sum()
    }
}

/// Returns the figures, and how long each request took.
async fn run(
    store: &str,
    threads: &str,
    on_failure: &str,
    quota: &str,
) -> (Figures, Vec<Duration>) {
    let _whole = whole_machine().await;
    let environment =
        [(STORE, store), (THREADS, threads), (ON_FAILURE, on_failure), (QUOTA, quota)];
    let mut server = Role::start("saturated::saturated_server", &environment);
    let address = server.says("listening on");
    let mut load = Role::start("saturated::saturating_load", &[(TARGET, &address)]);
    load.says("loading");
    sleep(LASTS).await;
    let (text, status) = (load.end(), server.end());
    let after = |word: &str| status.lines().find_map(|line| line.strip_prefix(word)).map(str::trim);
    let opened = after("opened") == Some("true");
    let mut figures = Figures { counts: BTreeMap::new(), admitted: 0, opened };
    for line in text.lines().filter_map(|line| line.strip_prefix("count ")) {
        let (count, what) = line.split_once(' ').expect("two words");
        let count = count.parse().expect("a number");
        match what.strip_prefix("admitted ") {
            Some(_) => figures.admitted = figures.admitted.max(count),
            None => drop(figures.counts.insert(what.to_owned(), count)),
        }
    }
    let waits = text.lines().filter_map(|line| line.strip_prefix("wait "));
    let micros = waits.map(|wait| wait.parse().expect("a number"));
    let waits: Vec<Duration> = micros.map(Duration::from_micros).collect();
    eprintln!(
        "measured: saturated, {threads} threads, {on_failure}: {figures:?}, p50 / p99 / max {}, {}",
        Waits::of(waits.iter().copied()),
        after("status").unwrap_or("no layer")
    );
    (figures, waits)
}

/// The longest time that a healthy Redis takes for a request of another process.
const HEALTHY: Duration = Duration::from_millis(25);

/// A thread of this process that asks Redis every few milliseconds, to see how healthy it is.
struct Pings {
    ends: Arc<AtomicBool>,
    longest: JoinHandle<Duration>,
}

impl Pings {
    fn start(url: &str) -> Self {
        let client = redis::Client::open(url).expect("an address");
        let mut connection = client.get_connection().expect("a connection");
        connection.set_read_timeout(Some(LASTS)).expect("a valid timeout");
        let ends = Arc::new(AtomicBool::new(false));
        let thread_ends = Arc::clone(&ends);
        let longest = thread::spawn(move || {
            let mut longest = Duration::ZERO;
            while !thread_ends.load(SeqCst) {
                let start = Instant::now();
                redis::cmd("PING").exec(&mut connection).expect("an answer");
                longest = longest.max(start.elapsed());
                thread::sleep(Duration::from_millis(2));
            }
            longest
        });
        Self { ends, longest }
    }

    /// Returns the longest time that a request took.
    fn end(self) -> Duration {
        self.ends.store(true, SeqCst);
        self.longest.join().expect("no panic")
    }
}

const PLENTY: &str = "1000000/s token-bucket(1000000)";
const FEW: &str = "100/h token-bucket(100)";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_late_process_does_not_blame_a_healthy_redis() {
    let redis = Server::start();
    let (mut blamed, mut rows, mut repeats) = (Vec::new(), Vec::new(), 10);
    for threads in ["1", "current"] {
        let (_, control) = run(CONTROL, threads, "none", PLENTY).await;
        for (on_failure, quota, limit) in
            [("deny", PLENTY, 1_000_000), ("local", PLENTY, 1_000_000), ("allow", FEW, 100)]
        {
            let (figures, waits, is_blamed) = loop {
                redis.ask::<()>("FLUSHALL");
                let pings = Pings::start(&redis.url());
                let (figures, waits) = run(&redis.url(), threads, on_failure, quota).await;
                let longest = pings.end();
                let is_blamed = figures.opened
                    || figures.count(|what| what.starts_with("503")) > 0
                    || figures.count(|what| what.ends_with("fallback")) > 0
                    || on_failure == "allow" && figures.admitted > 100;
                // Other tests may have taken Redis its processor. It was not healthy then.
                if !is_blamed || longest <= HEALTHY || repeats == 0 {
                    break (figures, waits, is_blamed);
                }
                repeats -= 1;
                repeated(&format!("a PING took {longest:?}"));
            };
            let unavailable = figures.count(|what| what.starts_with("503"));
            let runtime = if threads == "1" { "1 worker thread" } else { "current thread" };
            rows.push(FaultRow {
                fault: format!("application: overloaded, {runtime}, on failure {on_failure}"),
                waits,
                control: control.clone(),
                errors: unavailable as usize,
                admitted: figures.count(|what| what.starts_with("200")),
                bound: limit * KEYS,
                recovery: None,
            });
            if is_blamed {
                blamed.push((threads, on_failure, figures));
            }
        }
    }
    assert!(blamed.is_empty(), "{blamed:#?}");
    rows.iter().for_each(FaultRow::print);
}
