//! Limits of HTTP requests.

use std::{fs, path::PathBuf, time::Duration};

use plimsoll_testing::servers::directory;

use crate::{
    proxy::{Filter, Proxy},
    service::Service,
};

pub(crate) const LIMITS: &str = "
domain: shop
descriptors:
  - key: user
    rate_limit: { unit: hour, requests_per_unit: 3 }
  - key: tenant
    rate_limit: { unit: hour, requests_per_unit: 40 }
  - key: path
    value: /slow/*
    share_threshold: true
    descriptors:
      - key: user
        rate_limit: { unit: minute, requests_per_unit: 1 }
  - key: cost
    rate_limit: { quota: 100/h sliding-log }
";

/// Writes a configuration to a file in a folder of its own.
pub(crate) fn written(limits: &str) -> PathBuf {
    let file = directory().join("limits.yaml");
    fs::write(&file, limits).unwrap();
    file
}

pub(crate) fn filter(limiters: &[u16]) -> Filter<'_> {
    Filter { limiters, denies_on_failure: true, timeout: "5s" }
}

#[tokio::test(flavor = "multi_thread")]
async fn descriptors_limit_requests_and_headers_arrive() {
    let settings = directory().join("settings.toml");
    fs::write(&settings, "[envoy]\nratelimit-headers = true\n").unwrap();
    let more = ["--settings", settings.to_str().unwrap()];
    let service = Service::start_with(&written(LIMITS), None, &more);
    let proxy = Proxy::start(filter(&[service.port])).await;
    for left in [2, 1, 0] {
        let reply = proxy.get("/", &[("x-user", "alice"), ("x-tenant", "acme")]).await;
        assert_eq!((reply.status, &*reply.body), (200, &b"hello"[..]));
        let header = |name: &str| reply.headers[name].to_str().unwrap().to_owned();
        // These three are Envoy's, made of the statuses.
        assert_eq!(header("x-ratelimit-limit"), "3, 3;w=3600, 40;w=3600");
        assert_eq!(header("x-ratelimit-remaining"), left.to_string());
        let reset: u64 = header("x-ratelimit-reset").parse().unwrap();
        assert!((3_590..=3_720).contains(&reset), "{reset}");
        // These are the service's.
        assert_eq!(header("ratelimit-policy"), r#""user";q=3;w=3600, "tenant";q=40;w=3600"#);
        assert!(
            header("ratelimit").starts_with(&format!("\"user\";r={left};t=")),
            "{}",
            header("ratelimit")
        );
    }
    let reply = proxy.get("/", &[("x-user", "alice"), ("x-tenant", "acme")]).await;
    assert_eq!(reply.status, 429);
    assert_eq!(reply.headers["x-envoy-ratelimited"], "true");
    let wait: u64 = reply.headers["retry-after"].to_str().unwrap().parse().unwrap();
    assert!((3_590..=3_720).contains(&wait), "{wait}");
    // The denied request has not drained the tenant.
    let reply = proxy.get("/", &[("x-user", "bob"), ("x-tenant", "acme")]).await;
    let standing = reply.headers["ratelimit"].to_str().unwrap();
    assert!(reply.status == 200 && standing.starts_with("\"user\";r=2;t="), "{standing}");
    assert!(standing.contains("\"tenant\";r=36;"));
    // Patterns share a budget per user, and requests without headers have no limit.
    assert_eq!(proxy.get("/slow/a", &[("x-user", "carol")]).await.status, 200);
    assert_eq!(proxy.get("/slow/b", &[("x-user", "carol")]).await.status, 429);
    assert_eq!(proxy.get("/slow/b", &[("x-user", "dave")]).await.status, 200);
    assert_eq!(proxy.get("/slow/b", &[]).await.status, 200);
}

#[tokio::test(flavor = "multi_thread")]
async fn by_default_no_name_of_a_limit_reaches_a_client() {
    let service = Service::start(&written(LIMITS), None);
    let proxy = Proxy::start(filter(&[service.port])).await;
    for expected in [200, 200, 200, 429] {
        let reply = proxy.get("/", &[("x-user", "alice"), ("x-tenant", "acme")]).await;
        assert_eq!(reply.status, expected);
        // Those that remain are Envoy's.
        let ours = ["ratelimit", "ratelimit-policy", "retry-after"];
        assert!(ours.iter().all(|name| !reply.headers.contains_key(*name)), "{:?}", reply.headers);
        let text = format!("{:?} {:?}", reply.headers, reply.body);
        assert!(!text.contains("user") && !text.contains("tenant"), "{text}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn requests_cost_what_their_headers_say() {
    let service = Service::start(&written(LIMITS), None);
    let proxy = Proxy::start(filter(&[service.port])).await;
    let cost = async |cost: &str| {
        proxy.get("/cost", &[("x-user", "alice"), ("x-cost", cost)]).await.status
    };
    assert_eq!(
        (cost("60").await, cost("60").await, cost("40").await, cost("1").await),
        (200, 429, 200, 429)
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_changed_configuration_acts_without_a_restart() {
    let file = written(LIMITS);
    let service = Service::start(&file, None);
    let proxy = Proxy::start(filter(&[service.port])).await;
    for expected in [200, 200, 200, 429] {
        assert_eq!(proxy.get("/", &[("x-user", "alice")]).await.status, expected);
    }
    fs::write(&file, LIMITS.replace("requests_per_unit: 3 }", "requests_per_unit: 5 }")).unwrap();
    let mut admitted = 0;
    for _ in 0..100 {
        admitted += usize::from(proxy.get("/", &[("x-user", "alice")]).await.status == 200);
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    // Requests before the change keep counting.
    assert_eq!(admitted, 2);
    // A mistake changes nothing.
    fs::write(&file, "domain: shop\ndescriptors: nothing\n").unwrap();
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!(proxy.get("/", &[("x-user", "alice")]).await.status, 429);
    assert_eq!(proxy.get("/", &[("x-user", "bob")]).await.status, 200);
}
