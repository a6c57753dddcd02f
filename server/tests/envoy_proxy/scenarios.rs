//! The eight integration scenarios of envoyproxy/ratelimit, written anew: the service with its default switches behind a
//! real Envoy, each over an empty Redis. The figures are theirs. Where they wait for the next minute, the limits here are
//! per 15 s.

use std::{net::SocketAddr, time::Duration};

use plimsoll_testing::{
    servers::{Server, free_port},
    web::{self, Reply},
};

use crate::{
    examples::{REPORT, envoy_config, upstream},
    limits::written,
    proxy::Proxy,
    service::Service,
};

const LIMITS: &str = include_str!("configs/example_limits.yaml");

/// The time after which all requests are back, under the short limits.
const BACK: Duration = Duration::from_millis(15_600);

/// Envoy, the service and an empty Redis.
struct Scenario {
    _redis: Server,
    _service: Service,
    proxy: Proxy,
    metrics: u16,
}

impl Scenario {
    async fn start() -> Self {
        Self::with(LIMITS).await
    }

    /// Starts all three with limits per 15 s instead of an hour.
    async fn start_short() -> Self {
        let short = (1..=2).fold(LIMITS.to_owned(), |text, number| {
            let long = format!("unit: hour, requests_per_unit: {number} }}");
            text.replace(&long, &format!("quota: {number}/15s sliding-buckets(30) }}"))
        });
        Self::with(&short).await
    }

    async fn with(limits: &str) -> Self {
        let redis = Server::start();
        let [port, admin, limiter, one, other, metrics] = [(); 6].map(|()| free_port());
        upstream(1, one).await;
        upstream(2, other).await;
        let listener = format!("127.0.0.1:{metrics}");
        let more = ["--admin", &*listener];
        let service = Service::start_at(limiter, &written(limits), Some(&redis.url()), &more);
        let config = envoy_config([port, admin, limiter, one, other]);
        let proxy = Proxy::start_with(&config, port, admin);
        Self { _redis: redis, _service: service, proxy, metrics }
    }

    async fn get(&self, path: &str, headers: &[(&str, &str)]) -> Reply {
        self.proxy.get(path, headers).await
    }

    /// Sends requests one after the other, and compares their statuses.
    async fn expect(&self, path: &str, headers: &[(&str, &str)], statuses: &[u16]) {
        for (number, status) in (1..).zip(statuses) {
            let reply = self.get(path, headers).await;
            assert_eq!(reply.status, *status, "request {number} of {path} {headers:?}");
        }
    }

    /// Sends requests whose use Envoy reports afterwards. Returns the upstream of each, or `None` if it is denied.
    async fn served_by(&self, path: &str, requests: usize) -> Vec<Option<String>> {
        let mut served = Vec::new();
        for _ in 0..requests {
            let reply = self.get(path, &[]).await;
            assert!(reply.status == 200 || reply.status == 429, "{}", reply.status);
            let text = String::from_utf8(reply.body.to_vec()).unwrap();
            served.push((reply.status == 200).then_some(text));
            tokio::time::sleep(REPORT).await;
        }
        served
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn simple_get() {
    let scenario = Scenario::start().await;
    scenario.expect("/pair", &[("x-tenant", "test"), ("x-plan", "dark")], &[200]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn trigger_ratelimit() {
    let scenario = Scenario::start().await;
    let headers = [("x-tenant", "test"), ("x-plan", "known")];
    scenario.expect("/pair", &headers, &[200, 200, 200, 429, 429]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn trigger_shadow_mode_key() {
    let scenario = Scenario::start().await;
    let headers = [("x-tenant", "test"), ("x-plan", "dark")];
    for left in ["2", "1", "0", "0", "0", "0"] {
        let reply = scenario.get("/pair", &headers).await;
        let remaining = reply.headers["x-ratelimit-remaining"].to_str().unwrap();
        assert_eq!((reply.status, remaining), (200, left));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_value_of_a_client_is_in_no_metric() {
    let scenario = Scenario::start().await;
    scenario.expect("/detailed", &[("x-detailed", "its-value")], &[200, 200, 429]).await;
    let address = SocketAddr::from(([127, 0, 0, 1], scenario.metrics));
    let reply = web::http1(address).await.get("/metrics").await;
    let text = String::from_utf8(reply.body.to_vec()).unwrap();
    let over = "ratelimit_service_rate_limit_over_limit{domain=\"gate\",key1=\"detailed\"} 1";
    assert!(text.lines().any(|line| line == over) && !text.contains("its-value"), "{text}");
}

#[tokio::test(flavor = "multi_thread")]
async fn replaces() {
    let scenario = Scenario::start().await;
    let of = |op, from, to| [("x-tenant", "one"), ("x-op", op), ("x-from", from), ("x-to", to)];
    let four = async |headers: [(&str, &str); 4], statuses: &[u16]| {
        scenario.expect("/four", &headers, statuses).await;
    };
    // A limit of 0 is replaced by a larger one.
    scenario.expect("/pair", &[("x-tenant", "one"), ("x-op", "banned")], &[429]).await;
    four(of("banned", "gate", "main"), &[429]).await;
    four(of("banned", "gate", "pardon"), &[200, 200, 429]).await;
    // A limit that replaces another does not spend it.
    four(of("special", "gate", "special"), &[200, 200, 429]).await;
    four(of("special", "gate", "unknown"), &[200, 429]).await;
    four(of("special", "gate", "special"), &[429]).await;
    // One limit replaces two of other descriptors.
    let of = |to| {
        let [tenant, op, from, to] = of("special", "gate", to);
        [tenant, op, from, to, ("x-class", "staff")]
    };
    scenario.expect("/five", &of("fake"), &[200, 200, 200, 200, 429]).await;
    scenario.expect("/pair", &[("x-tenant", "two"), ("x-op", "special")], &[200, 429]).await;
    let three = [("x-tenant", "three"), ("x-op", "other"), ("x-from", "gate"), ("x-to", "fake")];
    scenario.expect("/four", &three, &[200, 200, 429]).await;
    scenario.expect("/five", &of("fake"), &[429]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn quota() {
    let scenario = Scenario::start_short().await;
    scenario.expect("/quota", &[], &[200, 200, 429]).await;
    tokio::time::sleep(BACK).await;
    scenario.expect("/quota", &[], &[200]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn token_quota() {
    let scenario = Scenario::start_short().await;
    let served = scenario.served_by("/used", 4).await;
    assert_eq!(served.iter().map(Option::is_some).collect::<Vec<_>>(), [true, true, true, false]);
    tokio::time::sleep(BACK).await;
    scenario.expect("/used", &[], &[200]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn multiservice_tokenquota() {
    let scenario = Scenario::start_short().await;
    let served = scenario.served_by("/pools", 6).await;
    let names = served.iter().map(|it| it.as_deref().unwrap_or("none")).collect::<Vec<_>>();
    let [one, two] = ["service 1", "service 2"];
    assert_eq!(names, [one, one, two, two, two, "none"]);
    tokio::time::sleep(BACK).await;
    assert_eq!(scenario.served_by("/pools", 1).await, [Some(one.to_owned())]);
}
