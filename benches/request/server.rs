//! The servers: processes that run this program with `--serve`.

use std::{
    fs,
    io::{BufRead, BufReader, Read},
    net::IpAddr,
    process::{Child, Command, Stdio},
    thread,
};

use axum::{Router, routing::get};
use http::request::Parts;
use plimsoll::{
    Key, Limiter, Policy, RateLimitLayer, RedisStore, Rule,
    layer::{Headers, ResetFormat},
};
use tower_governor::{
    GovernorLayer, governor::GovernorConfigBuilder, key_extractor::SmartIpKeyExtractor,
};

use crate::{FEW, MANY};

/// The body of each response, and no part of its head.
pub(crate) const BODY: &str = "admitted";

/// A server, and the load on it.
pub(crate) struct Variant {
    name: &'static str,
    pub(crate) what: &'static str,
    pub(crate) clients: u32,
    pub(crate) has_bar: bool,
}

/// The first one is the bare server.
pub(crate) const VARIANTS: [Variant; 10] = [
    variant("bare", "no layer"),
    variant("governor", "tower_governor, no headers"),
    variant("governor-headers", "tower_governor, its 2 headers"),
    variant("none", "in memory, no headers"),
    variant("three", "in memory, X-RateLimit (3)"),
    Variant { has_bar: true, ..variant("five", "in memory, default set (5)") },
    variant("redis", "Redis, no headers, 1,000 clients"),
    variant("leased", "Redis, leased, no headers, 1,000 clients"),
    Variant { clients: FEW, ..variant("redis", "Redis, no headers, 10 clients") },
    Variant { clients: FEW, ..variant("leased", "Redis, leased, no headers, 10 clients") },
];

const fn variant(name: &'static str, what: &'static str) -> Variant {
    Variant { name, what, clients: MANY, has_bar: false }
}

/// A server that runs. It ends when this value is dropped, or the program that holds it ends.
pub(crate) struct Server {
    child: Child,
    pub(crate) port: u16,
}

impl Server {
    pub(crate) fn start(variant: &Variant, redis: &str) -> Self {
        let program = std::env::current_exe().expect("this program");
        let mut command = Command::new(program);
        command.args(["--serve", variant.name, redis]);
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().expect("this program starts");
        let mut line = String::new();
        let output = child.stdout.take().expect("a pipe");
        BufReader::new(output).read_line(&mut line).expect("the server writes its port");
        Self { child, port: line.trim().parse().expect("a port") }
    }

    /// Returns the processor time that the server has used.
    pub(crate) fn cpu_micros(&self) -> f64 {
        let tasks = fs::read_dir(format!("/proc/{}/task", self.child.id())).expect("Linux");
        let nanos = tasks.filter_map(|task| {
            let statistics = fs::read_to_string(task.ok()?.path().join("schedstat")).ok()?;
            statistics.split(' ').next()?.parse::<f64>().ok()
        });
        nanos.sum::<f64>() / 1e3
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Serves until the standard input is closed.
pub(crate) fn serve(name: &str, redis: &str) {
    thread::spawn(|| {
        let _ = std::io::stdin().read_to_end(&mut Vec::new());
        std::process::exit(0);
    });
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build();
    runtime.expect("a runtime").block_on(async {
        let app = app(name, redis).await;
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a port");
        println!("{}", listener.local_addr().expect("an address").port());
        // In a task: the main thread is not one of the runtime's workers.
        let serving = tokio::spawn(async move { axum::serve(listener, app).await });
        serving.await.expect("no panic").expect("a listener");
    });
}

async fn app(name: &str, redis: &str) -> Router {
    let app = Router::new().route("/", get(|| async { BODY }));
    let three = Headers::none().x_ratelimit(ResetFormat::Seconds);
    let governor = || {
        let mut config = GovernorConfigBuilder::default().key_extractor(SmartIpKeyExtractor);
        config.per_millisecond(1).burst_size(1_000_000);
        config
    };
    match name {
        "bare" => app,
        "governor" => app.layer(GovernorLayer::new(governor().finish().expect("valid"))),
        "governor-headers" => {
            app.layer(GovernorLayer::new(governor().use_headers().finish().expect("valid")))
        }
        "none" => app.layer(layer(Limiter::in_memory(), "", Headers::none())),
        "three" => app.layer(layer(Limiter::in_memory(), "", three)),
        "five" => app.layer(layer(Limiter::in_memory(), "", Headers::default())),
        "redis" => app.layer(layer(shared(redis).await, "", Headers::none())),
        "leased" => app.layer(layer(shared(redis).await, " leased(500ms)", Headers::none())),
        other => panic!("no server {other}"),
    }
}

async fn shared(redis: &str) -> Limiter {
    Limiter::new(RedisStore::connect(redis).await.expect("Redis listens"))
}

/// Returns a layer whose limit no client reaches.
fn layer(limiter: Limiter, lease: &str, headers: Headers) -> RateLimitLayer {
    let quota = format!("60000000/min token-bucket(1000000){lease}");
    let policy = Policy::new("per-client", quota).expect("valid");
    let rule = Rule::new(policy, |parts: &Parts| {
        let forwarded = parts.headers.get("x-forwarded-for")?.to_str().ok()?;
        forwarded.parse::<IpAddr>().ok().map(Key::from)
    });
    RateLimitLayer::new(limiter, rule).headers(headers)
}
