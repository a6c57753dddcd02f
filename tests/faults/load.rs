//! The load: requests at a steady rate to two servers, over connections that stay open.

use std::{
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::SeqCst},
    },
    time::Duration,
};

use http_body_util::{BodyExt, Empty};
use hyper::client::conn::http1::{self, SendRequest};
use hyper_util::rt::TokioIo;
use plimsoll::clock::{Clock, SystemClock};
use plimsoll_testing::role::{Role, end_of_input};
use tokio::{
    net::TcpStream,
    time::{Instant, MissedTickBehavior, interval_at, timeout},
};

/// Connections to each server, each with a request every `EVERY`: longer than the deadline of a
/// check, so that a request that waits for it delays no other.
const CONNECTIONS: u64 = 32;
const EVERY: Duration = Duration::from_millis(64);
/// The number of keys of the load. Each request is charged to one of them.
pub(crate) const KEYS: u64 = 8;

const TARGETS: &str = "PLIMSOLL_TEST_TARGETS";

/// The result of one request.
#[derive(Debug, Clone)]
pub(crate) struct Sample {
    /// The time at which the request was due, in microseconds since the epoch.
    pub(crate) due: u64,
    /// From then until the end of the response.
    pub(crate) took: Duration,
    pub(crate) key: u64,
    /// 0 if the connection failed, or nothing came within 10 s.
    pub(crate) status: u16,
    pub(crate) source: String,
}

impl Sample {
    fn read(line: &str) -> Option<(usize, Self)> {
        let words: Vec<&str> = line.strip_prefix("sample ")?.split(' ').collect();
        let [server, due, took, key, status, source] = words[..] else { return None };
        let sample = Self {
            due: due.parse().ok()?,
            took: Duration::from_micros(took.parse().ok()?),
            key: key.parse().ok()?,
            status: status.parse().ok()?,
            source: source.to_owned(),
        };
        Some((server.parse().ok()?, sample))
    }
}

/// The role of the process of the load.
#[tokio::test]
#[ignore = "a role: another test starts it"]
async fn load() {
    let targets = std::env::var(TARGETS).expect("a role");
    let stop = Arc::new(AtomicBool::new(false));
    let mut tasks = Vec::new();
    let start = Instant::now() + Duration::from_millis(20);
    for (server, address) in targets.split(' ').enumerate() {
        for number in 0..CONNECTIONS {
            // Spread evenly over time.
            let start = start + EVERY * number as u32 / CONNECTIONS as u32;
            let address = address.parse().expect("an address");
            let client = Client { address, key: number % KEYS, sender: None };
            let stop = Arc::clone(&stop);
            tasks.push((server, tokio::spawn(client.run(start, stop))));
        }
    }
    println!("\nloading");
    end_of_input().await;
    stop.store(true, SeqCst);
    for (server, task) in tasks {
        for Sample { due, took, key, status, source } in task.await.expect("no panic") {
            println!("sample {server} {due} {} {key} {status} {source}", took.as_micros());
        }
    }
}

struct Client {
    address: SocketAddr,
    key: u64,
    sender: Option<SendRequest<Empty<bytes::Bytes>>>,
}

impl Client {
    async fn run(mut self, start: Instant, stop: Arc<AtomicBool>) -> Vec<Sample> {
        let mut samples = Vec::new();
        let clock = SystemClock::new();
        let mut ticks = interval_at(start, EVERY);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Burst);
        while !stop.load(SeqCst) {
            let due = ticks.tick().await;
            let late = due.elapsed();
            let epoch = clock.now().as_micros() - late.as_micros() as u64;
            let answer = timeout(Duration::from_secs(10), self.ask()).await;
            let (status, source) = answer.ok().flatten().unwrap_or_else(|| {
                self.sender = None;
                (0, "none".to_owned())
            });
            let key = self.key;
            samples.push(Sample { due: epoch, took: due.elapsed(), key, status, source });
        }
        samples
    }

    async fn ask(&mut self) -> Option<(u16, String)> {
        if self.sender.as_ref().is_none_or(SendRequest::is_closed) {
            let io = TokioIo::new(TcpStream::connect(self.address).await.ok()?);
            let (sender, connection) = http1::handshake(io).await.ok()?;
            tokio::spawn(connection);
            self.sender = Some(sender);
        }
        let request = http::Request::get("/").header("host", "localhost");
        let request = request.header("x-api-key", format!("client-{}", self.key));
        let response = self.sender.as_mut()?.send_request(request.body(Empty::new()).ok()?);
        let (head, body) = response.await.ok()?.into_parts();
        body.collect().await.ok()?;
        let source = head.headers.get("x-source").and_then(|it| it.to_str().ok());
        Some((head.status.as_u16(), source.unwrap_or("none").to_owned()))
    }
}

/// Loads a server, and the control beside it, from a process of its own.
pub(crate) struct Loading(Role);

impl Loading {
    pub(crate) fn start(server: SocketAddr, control: SocketAddr) -> Self {
        let targets = format!("{server} {control}");
        let mut role = Role::start("load::load", &[(TARGETS, &targets)]);
        role.says("loading");
        Self(role)
    }

    /// Ends the load. Returns the samples of the server and of the control, in the order of time.
    pub(crate) fn end(self) -> [Vec<Sample>; 2] {
        let mut samples = [Vec::new(), Vec::new()];
        for (server, sample) in self.0.end().lines().filter_map(Sample::read) {
            samples[server].push(sample);
        }
        for samples in &mut samples {
            samples.sort_by_key(|sample| sample.due);
        }
        samples
    }
}
