//! Redis hangs and dies under load, through Envoy and through gRPC.

use std::{
    collections::BTreeMap,
    process::Command,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::SeqCst},
    },
    time::Duration,
};

use envoy_types::pb::envoy::{
    extensions::common::ratelimit::v3::{RateLimitDescriptor, rate_limit_descriptor::Entry},
    service::ratelimit::v3::{RateLimitRequest, rate_limit_service_client::RateLimitServiceClient},
};
use plimsoll_testing::{
    calm::on_a_calm_machine,
    servers::{Guarded, Server, until},
};
use tokio::time::Instant;

use crate::{
    limits::{filter, written},
    proxy::Proxy,
    service::{DEADLINE, Service},
};

const LIMITS: &str = "
domain: shop
descriptors:
  - key: user
    rate_limit: { unit: hour, requests_per_unit: 1000000 }
";

/// The time that Envoy, the two hops and the machine may add.
const ADDED: Duration = Duration::from_millis(150);

/// The requests of a load, by outcome, and the longest wait.
#[derive(Debug, Default)]
struct Load {
    outcomes: BTreeMap<String, usize>,
    longest: Duration,
}

impl Load {
    fn add(&mut self, outcome: String, wait: Duration) {
        *self.outcomes.entry(outcome).or_default() += 1;
        self.longest = self.longest.max(wait);
    }
}

async fn http_load(proxy: &Proxy, ends: Arc<AtomicBool>) -> Load {
    let (mut client, mut load) = (proxy.client().await, Load::default());
    while !ends.load(SeqCst) {
        let start = Instant::now();
        let status = client.get_with("/", &[("x-user", "alice")]).await.status;
        load.add(status.to_string(), start.elapsed());
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
    load
}

async fn grpc_load(url: String, ends: Arc<AtomicBool>) -> Load {
    let mut client = RateLimitServiceClient::connect(url).await.unwrap();
    let mut load = Load::default();
    let entries = vec![Entry { key: "user".into(), value: "alice".into() }];
    let descriptors = vec![RateLimitDescriptor { entries, ..RateLimitDescriptor::default() }];
    let request = RateLimitRequest { domain: "shop".into(), descriptors, hits_addend: 0 };
    while !ends.load(SeqCst) {
        let start = Instant::now();
        let outcome = match client.should_rate_limit(request.clone()).await {
            Ok(_) => "decided".to_owned(),
            Err(status) => format!("{:?}", status.code()),
        };
        load.add(outcome, start.elapsed());
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
    load
}

/// Runs both loads while `fault` happens, and returns them.
async fn under_load(
    redis: &mut Server,
    denies: bool,
    fault: impl AsyncFnOnce(&mut Server),
) -> (Load, Load) {
    let more: &[_] = if denies { &["--on-failure", "deny"] } else { &[] };
    let service = Service::start_with(&written(LIMITS), Some(&redis.url()), more);
    load_during(&service, async || fault(redis).await).await
}

/// Runs both loads against a service while `fault` happens, and returns them.
async fn load_during(service: &Service, fault: impl AsyncFnOnce()) -> (Load, Load) {
    let proxy = Proxy::start(filter(&[service.port])).await;
    let ends = Arc::new(AtomicBool::new(false));
    let work = async {
        tokio::time::sleep(Duration::from_millis(500)).await;
        fault().await;
        tokio::time::sleep(Duration::from_millis(1_500)).await;
        ends.store(true, SeqCst);
    };
    let http = http_load(&proxy, Arc::clone(&ends));
    let grpc = tokio::spawn(grpc_load(service.url(), Arc::clone(&ends)));
    let (http, ()) = tokio::join!(http, work);
    (http, grpc.await.unwrap())
}

fn signal(redis: &Server, signal: &str) {
    let killed = Command::new("kill").args([signal, &redis.pid().to_string()]).status().unwrap();
    assert!(killed.success());
}

async fn hang(redis: &mut Server) {
    signal(redis, "-STOP");
    tokio::time::sleep(Duration::from_secs(1)).await;
    signal(redis, "-CONT");
}

async fn die(redis: &mut Server) {
    redis.kill();
    tokio::time::sleep(Duration::from_millis(500)).await;
    redis.run();
}

/// Judges the outcomes, and returns an error if a request has waited too long.
fn judge(loads: &(Load, Load)) -> Result<(), String> {
    let (http, grpc) = loads;
    eprintln!("through Envoy: {http:?}\nby gRPC: {grpc:?}");
    let known = ["decided", "Unavailable"];
    assert!(grpc.outcomes.keys().all(|it| known.contains(&&**it)), "{grpc:?}");
    if grpc.outcomes.get("decided").is_none_or(|decided| *decided <= 50) {
        return Err(format!("few requests were decided: {grpc:?}"));
    }
    let longest = http.longest.max(grpc.longest);
    let limit = DEADLINE + ADDED;
    if longest > limit { Err(format!("{longest:?} instead of {limit:?}")) } else { Ok(()) }
}

#[tokio::test(flavor = "multi_thread")]
async fn while_redis_hangs_no_request_waits_longer_than_the_deadline() {
    on_a_calm_machine(async || {
        let loads = under_load(&mut Server::start(), false, hang).await;
        // The fallback of the service decides meanwhile.
        assert_eq!(loads.0.outcomes.keys().collect::<Vec<_>>(), ["200"], "{loads:?}");
        judge(&loads)
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn while_redis_hangs_a_service_that_denies_is_unavailable() {
    on_a_calm_machine(async || {
        let loads = under_load(&mut Server::start(), true, hang).await;
        assert!(loads.1.outcomes.contains_key("Unavailable"), "{loads:?}");
        assert!(loads.0.outcomes.contains_key("500"), "{loads:?}");
        judge(&loads)
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn redis_dies_and_comes_back() {
    on_a_calm_machine(async || {
        let loads = under_load(&mut Server::start(), true, die).await;
        assert!(loads.1.outcomes.contains_key("Unavailable"), "{loads:?}");
        judge(&loads)
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_failover_of_sentinels_delays_no_request_beyond_the_deadline() {
    on_a_calm_machine(async || {
        let mut guarded = Guarded::start();
        let sentinels = guarded.sentinel.url();
        let store = ["--redis-sentinels", &sentinels, "--redis-primary", Guarded::NAME];
        let service = Service::start_with(&written(LIMITS), None, &store);
        let loads = load_during(&service, async || {
            guarded.primary.kill();
            // The loads go on meanwhile.
            while !guarded.replica.is_primary() {
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
            guarded.replica.ask::<()>("FLUSHALL");
        })
        .await;
        assert_eq!(loads.0.outcomes.keys().collect::<Vec<_>>(), ["200"], "{loads:?}");
        assert_eq!(loads.1.outcomes.keys().collect::<Vec<_>>(), ["decided"], "{loads:?}");
        // The service counts in the promoted replica.
        until("the new primary has the key", || !guarded.replica.keys().is_empty());
        judge(&loads)
    })
    .await;
}
