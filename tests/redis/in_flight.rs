//! A concurrency limit over several processes that serve HTTP: clients hang up, handlers panic, bodies are
//! dropped half-way, one process is killed and one is stopped for longer than the expiry.

use std::{
    convert::Infallible,
    net::SocketAddr,
    process::Command,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::Duration,
};

use axum::{Extension, Router, body::Body, extract::Request, http::Uri, middleware::map_request};
use bytes::Bytes;
use futures_util::stream;
use http_body_util::{BodyExt, Empty};
use hyper::client::conn::http1::{self, SendRequest};
use hyper_util::rt::TokioIo;
use plimsoll::{
    Limiter, RateLimitLayer, RedisStore, Resilience, Rule, by,
    clock::{Clock, SystemClock},
    redis::RedisConfig,
};
use plimsoll_testing::{
    role::{Role, end_of_input},
    seed::Random,
    servers::Server,
    web,
};
use tokio::{
    net::TcpStream,
    task::JoinHandle,
    time::{Instant, sleep, timeout},
};

use crate::{patient, policy};

const UNITS: u64 = 20;
/// So long that a process renews its units in time, also if it stands still for 5/8 of it.
const QUOTA: &str = "20 concurrent expires(8s)";
const EXPIRY: Duration = Duration::from_secs(8);
/// The number of requests of all processes that are answered with status 200.
const REQUESTS: u64 = 100_000;
/// The clients of each process. All processes together have more clients than units.
const CLIENTS: u64 = 12;

/// Adds a request to the set of its process, and returns the size of all sets: the requests in flight, which
/// Redis counts without the limiter. A process that was stopped after the layer had asked for a unit may begin
/// a request whose unit has expired. Such a request is not added. Processes that are gone are not counted: a
/// request that they have sent before may still be on its way to Redis.
const BEGIN: &str = "local time = redis.call('TIME') \
    if time[1] * 1000 + time[2] / 1000 - ARGV[2] <= 500 then \
    redis.call('SADD', KEYS[1], ARGV[1]) end \
    local sum = 0 \
    for process = 0, 3 do if redis.call('EXISTS', 'gone:' .. process) == 0 then \
    sum = sum + redis.call('SCARD', 'in-flight:' .. process) end end \
    return sum";

/// The requests in flight of a process, counted in Redis.
struct Counter {
    client: redis::Client,
    connections: Mutex<Vec<redis::Connection>>,
    set: String,
    requests: AtomicU64,
    /// The most requests of all processes that a request has seen in flight.
    most: AtomicU64,
}

impl Counter {
    /// Sends a command and waits for the answer, on a connection that no other request uses meanwhile.
    fn ask(&self, command: &redis::Cmd) -> u64 {
        let connection = self.connections.lock().expect("no panic").pop();
        let mut connection =
            connection.unwrap_or_else(|| self.client.get_connection().expect("a connection"));
        let answer = command.query(&mut connection).expect("an answer");
        self.connections.lock().expect("no panic").push(connection);
        answer
    }

    fn begin(self: &Arc<Self>, asked: Asked) -> InFlight {
        let number = self.requests.fetch_add(1, Ordering::Relaxed);
        let in_flight = InFlight { counter: Arc::clone(self), number };
        let mut begin = redis::cmd("EVAL");
        begin.arg(BEGIN).arg(1).arg(&self.set).arg(number).arg(asked.0);
        self.most.fetch_max(self.ask(&begin), Ordering::Relaxed);
        in_flight
    }
}

/// A guard of a request in flight.
///
/// It has to be gone from Redis before the layer releases the unit, or another request would count it beside
/// its own. So its drop waits for Redis, and blocks the thread. The layer drops its permit after the future
/// and the body of the handler, which own this guard, and after the end of the body.
struct InFlight {
    counter: Arc<Counter>,
    number: u64,
}

impl Drop for InFlight {
    fn drop(&mut self) {
        self.counter.ask(redis::cmd("SREM").arg(&self.counter.set).arg(self.number));
    }
}

/// The time in milliseconds at which the layer got the request.
#[derive(Debug, Clone, Copy)]
struct Asked(u64);

impl Asked {
    fn now() -> Self {
        Self(SystemClock::new().now().as_micros() / 1_000)
    }
}

/// Answers with a number of parts, each after some milliseconds: `/<parts>/<milliseconds>`.
async fn job(counter: Arc<Counter>, asked: Asked, uri: Uri) -> Body {
    let in_flight = counter.begin(asked);
    let mut words = uri.path().split('/').skip(1).map(|word| word.parse().expect("a number"));
    let (parts, pause): (u64, u64) = (words.next().unwrap(), words.next().unwrap());
    let pause = Duration::from_millis(pause);
    if parts == 0 {
        sleep(pause).await;
        std::panic::resume_unwind(Box::new("a handler"));
    }
    Body::from_stream(stream::unfold((in_flight, parts), move |(in_flight, parts)| async move {
        if parts == 0 {
            // The request is over before the layer hears of the end of its body.
            drop(in_flight);
            return None;
        }
        if !pause.is_zero() {
            sleep(pause).await;
        }
        Some((Ok::<_, Infallible>(Bytes::from_static(b"part")), (in_flight, parts - 1)))
    }))
}

async fn limiter(url: &str) -> Limiter {
    let config = RedisConfig::url(url).with_settings(patient());
    Limiter::with_resilience(
        RedisStore::connect_with(config).await.expect("a store"),
        Resilience::none(),
    )
}

async fn serve(url: &str, counter: &Arc<Counter>) -> SocketAddr {
    let rule = Rule::new(policy("jobs", QUOTA), by::constant("all"));
    let counter = Arc::clone(counter);
    let job = move |Extension(asked), uri| job(Arc::clone(&counter), asked, uri);
    let layer = RateLimitLayer::new(limiter(url).await, rule);
    let date = async |mut request: Request| {
        request.extensions_mut().insert(Asked::now());
        request
    };
    web::serve(Router::new().fallback(job).layer(layer).layer(map_request(date))).await
}

/// A connection of a client, which hangs up when this is dropped.
struct Connection {
    sender: SendRequest<Empty<Bytes>>,
    task: JoinHandle<hyper::Result<()>>,
}

impl Connection {
    async fn open(address: SocketAddr) -> Self {
        let stream = TcpStream::connect(address).await.expect("a connection");
        let (sender, connection) =
            http1::handshake(TokioIo::new(stream)).await.expect("a connection");
        Self { sender, task: tokio::spawn(connection) }
    }

    /// Sends a request, and reads the body of its answer. Reads only the first frame if `hangs_up`.
    async fn get(&mut self, path: &str, hangs_up: bool) -> hyper::Result<u16> {
        let request = http::Request::get(path).header("host", "localhost");
        self.sender.ready().await?;
        let answer = self.sender.send_request(request.body(Empty::new()).expect("valid")).await?;
        let (head, mut body) = answer.into_parts();
        while let Some(frame) = body.frame().await {
            frame?;
            if hangs_up {
                break;
            }
        }
        Ok(head.status.as_u16())
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// Sends requests until the clients of all processes have sent enough.
async fn ask(address: SocketAddr, url: String, is_over: Arc<AtomicBool>, mut random: Random) {
    let client = redis::Client::open(url).expect("an address");
    let options = redis::AsyncConnectionConfig::new().set_response_timeout(None);
    let total = client.get_multiplexed_async_connection_with_config(&options).await;
    let mut total = total.expect("a connection");
    let (mut connection, mut answered) = (None, 0);
    while !is_over.load(Ordering::Relaxed) {
        let path = match random.below(4_000) {
            // Longer than the expiry.
            0 => "/10/1000".to_owned(),
            1..40 => format!("/0/{}", random.below(3)),
            40..1_440 => format!("/3/{}", random.below(8)),
            _ => "/1/0".to_owned(),
        };
        let mut open = match connection.take() {
            Some(open) => open,
            None => Connection::open(address).await,
        };
        // Some clients hang up while the request is on its way, and some when a part of the body has come.
        let hangs_up = random.below(100);
        let patience = if hangs_up == 0 { random.below(4) } else { 60_000 };
        let request = open.get(&path, hangs_up == 1);
        // A handler that panics ends its connection.
        let Ok(Ok(status)) = timeout(Duration::from_millis(patience), request).await else {
            continue;
        };
        if hangs_up != 1 {
            connection = Some(open);
        }
        if status != 200 {
            assert_eq!(status, 429);
            sleep(Duration::from_millis(10)).await;
            continue;
        }
        answered += 1;
        if answered % 50 == 0 {
            let sum = redis::cmd("INCRBY").arg("total").arg(50).query_async(&mut total).await;
            let sum: u64 = sum.expect("a sum");
            is_over.fetch_or(sum >= REQUESTS, Ordering::Relaxed);
        }
    }
}

/// The role of each process.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "a role: another test starts it"]
async fn worker() {
    let url = std::env::var("PLIMSOLL_TEST_URL").expect("a role");
    let number: u64 =
        std::env::var("PLIMSOLL_TEST_NUMBER").expect("set").parse().expect("a number");
    let counter = Arc::new(Counter {
        client: redis::Client::open(url.as_str()).expect("an address"),
        connections: Mutex::default(),
        set: format!("in-flight:{number}"),
        requests: AtomicU64::new(0),
        most: AtomicU64::new(0),
    });
    let address = serve(&url, &counter).await;
    println!("\nlistens on {address}");
    let is_over = Arc::new(AtomicBool::new(false));
    let clients: Vec<_> = (0..CLIENTS)
        .map(|client| {
            let random = Random(number * 100 + client);
            tokio::spawn(ask(address, url.clone(), Arc::clone(&is_over), random))
        })
        .collect();
    for client in clients {
        client.await.expect("no panic");
    }
    println!("\nmost {}", counter.most.load(Ordering::Relaxed));
    end_of_input().await;
}

fn signal(role: &Role, name: &str) {
    let status = Command::new("kill").args([name, &role.pid().to_string()]).status();
    assert!(status.expect("kill runs").success());
}

async fn free(limiter: &Limiter) -> u64 {
    let jobs = policy("jobs", QUOTA);
    let peek = limiter.peek(jobs.charge("all", 0)).await.expect("an answer");
    peek.binding().expect("a charge").standing().remaining
}

/// Waits until this number of units is free. Returns the time at which Redis was last asked before. They were not
/// free then, however late this test is polled.
async fn becomes_free(limiter: &Limiter, units: u64) -> Duration {
    let (start, mut last) = (Instant::now(), Duration::ZERO);
    loop {
        let asked = start.elapsed();
        let free = free(limiter).await;
        if free == units {
            return last;
        }
        last = asked;
        assert!(asked < 2 * EXPIRY, "{free} units are free, and not {units}, after {asked:?}");
        sleep(Duration::from_millis(5)).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn four_processes_have_no_more_requests_in_flight_than_the_limit() {
    let server = Server::start();
    let start = Instant::now();
    let mut roles: Vec<_> = (0..4)
        .map(|number| {
            let number = format!("{number}");
            let environment =
                [("PLIMSOLL_TEST_URL", server.url()), ("PLIMSOLL_TEST_NUMBER", number)];
            let environment: Vec<_> =
                environment.iter().map(|(name, it)| (*name, it.as_str())).collect();
            Role::start("in_flight::worker", &environment)
        })
        .collect();
    let addresses: Vec<SocketAddr> = roles
        .iter_mut()
        .map(|role| role.says("listens on ").parse().expect("an address"))
        .collect();
    sleep(Duration::from_millis(1_500)).await;
    // One is killed: its requests are over, and its units expire.
    signal(&roles[3], "-KILL");
    sleep(Duration::from_millis(100)).await;
    server.ask::<()>("SET gone:3 1");
    drop(roles.pop());
    // One is stopped. Its requests count until it has stood still for 5/8 of the expiry. The signal and the
    // command take a part of the time.
    sleep(Duration::from_millis(500)).await;
    signal(&roles[2], "-STOP");
    sleep(EXPIRY * 5 / 8 - Duration::from_millis(50)).await;
    server.ask::<()>("SET gone:2 1");
    sleep(EXPIRY).await;
    server.ask::<()>("DEL in-flight:2 gone:2");
    signal(&roles[2], "-CONT");
    let mut most = 0;
    for role in &mut roles {
        most = most.max(role.says("most ").parse::<u64>().expect("a number"));
    }
    // All units are free again, without waiting for any to expire.
    let limiter = limiter(&server.url()).await;
    let released = becomes_free(&limiter, UNITS).await;
    let total = server.ask::<u64>("GET total");
    eprintln!(
        "{total} requests in {:?}, at most {most} in flight, all units free {released:?} after the last",
        start.elapsed()
    );
    assert!(total >= REQUESTS);
    assert!(most <= UNITS, "{most} in flight");
    assert!(most > UNITS * 3 / 4, "the limit was made use of: {most}");
    assert!(released < EXPIRY / 4, "units that no request held for {released:?}");
    // The units of a process that is killed are free within the expiry.
    let mut connections = Vec::new();
    for _ in 0..UNITS / 2 {
        let mut connection = Connection::open(addresses[0]).await;
        connections.push(tokio::spawn(async move { connection.get("/20/1000", false).await }));
    }
    becomes_free(&limiter, UNITS / 2).await;
    signal(&roles[0], "-KILL");
    let took = becomes_free(&limiter, UNITS).await;
    assert!(took <= EXPIRY + Duration::from_millis(200), "{took:?}");
    drop(roles.remove(0));
    for connection in connections {
        assert!(connection.await.expect("no panic").is_err());
    }
    roles.into_iter().for_each(|role| drop(role.end()));
}
