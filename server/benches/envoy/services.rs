//! The services, in processes of their own.

use std::{
    env,
    ffi::OsString,
    fs,
    net::{Ipv4Addr, SocketAddr, TcpStream},
    process::{Child, Command, Stdio},
    thread::sleep,
    time::Duration,
};

use axum::{Json, routing::post};
use envoy_types::pb::envoy::{
    extensions::common::ratelimit::v3::{RateLimitDescriptor, rate_limit_descriptor::Entry},
    service::ratelimit::v3::{
        RateLimitRequest, RateLimitResponse,
        rate_limit_response::{Code, DescriptorStatus, RateLimit},
        rate_limit_service_client::RateLimitServiceClient,
        rate_limit_service_server::{RateLimitService, RateLimitServiceServer},
    },
};
use plimsoll_server::{Server, settings::Flags};
use plimsoll_testing::servers::{Server as Redis, directory, free_port};
use prost::Message;
use redis::{Script, aio::MultiplexedConnection};
use serde::{Deserialize, Serialize};
use tokio::net::TcpListener;
use tonic::{Request, Response, Status, transport};

/// The environment variables that say a process its role, its port, and the URL of Redis.
pub(crate) const ROLE: &str = "PLIMSOLL_BENCH_ROLE";
const PORT: &str = "PLIMSOLL_BENCH_PORT";
const REDIS: &str = "PLIMSOLL_BENCH_REDIS";

/// A limit that is never reached.
const LIMITS: &str = "
domain: bench
descriptors:
  - key: user
    rate_limit: { QUOTA }
";

/// A process that serves until this is dropped.
pub(crate) struct Process {
    pub(crate) port: u16,
    child: Child,
}

impl Process {
    pub(crate) fn start(role: &str, redis: &Redis) -> Self {
        let port = free_port();
        let child = Command::new(env::current_exe().expect("this program"))
            .env(ROLE, role)
            .env(PORT, port.to_string())
            .env(REDIS, redis.url())
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .spawn()
            .expect("a process");
        // A process that does not start ends with this.
        let started = Self { port, child };
        for _ in 0..500 {
            if TcpStream::connect((Ipv4Addr::LOCALHOST, port)).is_ok() {
                return started;
            }
            sleep(Duration::from_millis(10));
        }
        panic!("{role} does not start");
    }

    /// Returns the processor time that the process has used, in microseconds.
    pub(crate) fn cpu_micros(&self) -> f64 {
        let tasks = fs::read_dir(format!("/proc/{}/task", self.child.id())).expect("it runs");
        let nanos = tasks.filter_map(|task| {
            let statistics = fs::read_to_string(task.ok()?.path().join("schedstat")).ok()?;
            statistics.split(' ').next()?.parse::<f64>().ok()
        });
        nanos.sum::<f64>() / 1e3
    }

    pub(crate) fn assert_admits(&self) {
        let url = format!("http://127.0.0.1:{}", self.port);
        let response = runtime(1).block_on(async {
            let mut client = RateLimitServiceClient::connect(url).await.expect("a connection");
            client.should_rate_limit(request()).await.expect("an answer").into_inner()
        });
        assert_eq!(response.overall_code(), Code::Ok);
        assert_eq!(response.statuses.len(), 1);
        assert!(response.statuses[0].current_limit.is_some());
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn runtime(threads: usize) -> tokio::runtime::Runtime {
    let mut builder = tokio::runtime::Builder::new_multi_thread();
    builder.worker_threads(threads).enable_all().build().expect("a runtime")
}

fn request() -> RateLimitRequest {
    let entries = vec![Entry { key: "user".into(), value: "alice".into() }];
    let descriptors = vec![RateLimitDescriptor { entries, ..RateLimitDescriptor::default() }];
    RateLimitRequest { domain: "bench".into(), descriptors, hits_addend: 0 }
}

/// Returns the request as the body of a gRPC call.
pub(crate) fn framed_request() -> Vec<u8> {
    let message = request().encode_to_vec();
    let mut body = vec![0];
    body.extend((message.len() as u32).to_be_bytes());
    body.extend(message);
    body
}

/// The body of a check over HTTP.
pub(crate) const CHECK: &str = r#"{"charges":[{"policy":"user","key":"alice"}]}"#;

pub(crate) fn serve(role: &str) {
    let variable = |name: &str| env::var(name).expect("a variable of the benchmark");
    let address = format!("127.0.0.1:{}", variable(PORT)).parse().expect("an address");
    let redis = variable(REDIS);
    let mut server = transport::Server::builder();
    runtime(2).block_on(async {
        let router = match role {
            "bare" => server.add_service(RateLimitServiceServer::new(Bare)),
            "evalsha" => {
                let client = redis::Client::open(redis).expect("a URL");
                let connection = client.get_multiplexed_async_connection().await.expect("Redis");
                let script = Script::new(COUNT);
                server.add_service(RateLimitServiceServer::new(EvalSha { connection, script }))
            }
            "bare HTTP" => {
                let listener = TcpListener::bind(address).await.expect("a port");
                let router = axum::Router::new().route("/v1/check", post(check));
                return axum::serve(listener, router).await.expect("a port");
            }
            role => return serve_whole(role, address, &redis).await,
        };
        router.serve(address).await.expect("a port");
    });
}

/// Runs the service as `plimsoll-server` does. The role "HTTP" serves the HTTP API, and the others gRPC.
async fn serve_whole(role: &str, address: SocketAddr, redis: &str) {
    let folder = directory();
    let quota = match role {
        "leased" => "quota: 1000000000/min token-bucket(1000000000) leased(500ms)",
        _ => "unit: minute, requests_per_unit: 2000000000",
    };
    let limits = folder.join("bench.yaml");
    fs::write(&limits, LIMITS.replace("QUOTA", quota)).expect("a file");
    let config = folder.join("limits.toml");
    fs::write(&config, "policies.user = \"1000000000/s token-bucket(1000000000)\"")
        .expect("a file");
    let address = address.to_string();
    let (http, grpc) = if role.ends_with("HTTP") { (&*address, "off") } else { ("off", &*address) };
    let mut flags = vec!["plimsoll-server", "--http", http, "--grpc", grpc, "--admin", "off"];
    let files = [&limits, &config].map(|it| it.to_str().expect("UTF-8"));
    flags.extend(["--envoy-config", files[0], "--config", files[1]]);
    if !role.starts_with("memory") {
        flags.extend(["--redis", redis]);
    }
    let flags = Flags::parse_from(flags.iter().map(OsString::from)).expect("flags");
    let settings = flags.settings().expect("settings");
    Server::new(settings).await.expect("it starts").run().await.expect("it runs");
}

/// A check, in the form of the HTTP API.
#[derive(Deserialize)]
struct Check {
    charges: Vec<Asked>,
}

#[derive(Deserialize)]
struct Asked {
    policy: String,
    key: String,
}

/// The answer to a check, in the form of the HTTP API.
#[derive(Serialize)]
struct Checked {
    allowed: bool,
    source: &'static str,
    charges: Vec<Charged>,
}

#[derive(Serialize)]
struct Charged {
    policy: String,
    outcome: &'static str,
    quota: &'static str,
    granted: u64,
    limit: u64,
    remaining: u64,
    next_after: f64,
    reset_after: f64,
    retry_after: Option<f64>,
}

/// Answers as the service does, and decides nothing.
async fn check(Json(body): Json<Check>) -> Json<Checked> {
    let charges = body.charges.into_iter().map(|asked| Charged {
        policy: asked.policy,
        outcome: "allowed",
        quota: "1000000000/s token-bucket(1000000000)",
        granted: 1,
        limit: 1_000_000_000,
        remaining: 1_000_000_000 - asked.key.len() as u64,
        next_after: 0.0,
        reset_after: 0.0,
        retry_after: None,
    });
    Json(Checked { allowed: true, source: "local", charges: charges.collect() })
}

/// A service that admits all requests at once.
struct Bare;

/// A service that sends one EVALSHA per call, over one connection that all calls share.
struct EvalSha {
    connection: MultiplexedConnection,
    script: Script,
}

/// A fixed window, in the form in which it is usually written.
const COUNT: &str = "
local count = redis.call('INCRBY', KEYS[1], ARGV[1])
if count == tonumber(ARGV[1]) then redis.call('EXPIRE', KEYS[1], 60) end
return count";

fn admitted(remaining: u32) -> Result<Response<RateLimitResponse>, Status> {
    let limit = RateLimit { requests_per_unit: 2_000_000_000, unit: 2, ..RateLimit::default() };
    let status = DescriptorStatus {
        code: Code::Ok as i32,
        current_limit: Some(limit),
        limit_remaining: remaining,
        ..DescriptorStatus::default()
    };
    Ok(Response::new(RateLimitResponse {
        overall_code: Code::Ok as i32,
        statuses: vec![status],
        ..RateLimitResponse::default()
    }))
}

#[tonic::async_trait]
impl RateLimitService for Bare {
    async fn should_rate_limit(
        &self,
        request: Request<RateLimitRequest>,
    ) -> Result<Response<RateLimitResponse>, Status> {
        admitted(request.get_ref().descriptors.len() as u32)
    }
}

#[tonic::async_trait]
impl RateLimitService for EvalSha {
    async fn should_rate_limit(
        &self,
        request: Request<RateLimitRequest>,
    ) -> Result<Response<RateLimitResponse>, Status> {
        let entry = &request.get_ref().descriptors[0].entries[0];
        let key = format!("bench_{}_{}", entry.key, entry.value);
        let mut connection = self.connection.clone();
        let count = self.script.key(key).arg(1).invoke_async::<u32>(&mut connection).await;
        match count {
            Ok(count) => admitted(2_000_000_000_u32.saturating_sub(count)),
            Err(_) => Err(Status::unavailable("Redis")),
        }
    }
}
