//! A service that is down, and connections that end.

use std::time::Duration;

use plimsoll_testing::servers::Server;

use crate::{
    limits::{LIMITS, filter, written},
    proxy::{Filter, Proxy},
    service::Service,
};

#[tokio::test(flavor = "multi_thread")]
async fn failure_mode_deny_decides_while_the_service_is_down() {
    let redis = Server::start();
    let mut service = Service::start(&written(LIMITS), Some(&redis.url()));
    let limiters = [service.port];
    let closed = Proxy::start(filter(&limiters)).await;
    let open = Proxy::start(Filter { denies_on_failure: false, ..filter(&limiters) }).await;
    let ask = async |proxy: &Proxy| proxy.get("/", &[("x-user", "alice")]).await.status;
    assert_eq!((ask(&closed).await, ask(&open).await), (200, 200));
    service.kill();
    for _ in 0..3 {
        assert_eq!((ask(&closed).await, ask(&open).await), (500, 200));
    }
    assert!(open.counter("ratelimit.failure_mode_allowed").await >= 3);
    // The budget is in Redis, so the next process goes on with it.
    service.run();
    let mut statuses = Vec::new();
    for _ in 0..400 {
        statuses.push(ask(&closed).await);
        if statuses.last() == Some(&429) {
            break;
        }
        tokio::time::sleep(Duration::from_millis(25)).await;
    }
    assert_eq!(statuses.iter().filter(|it| **it == 200).count(), 1, "{statuses:?}");
    assert_eq!(statuses.last(), Some(&429));
    // Soon Envoy has connected again everywhere.
    assert_eq!(ask(&closed).await, 429);
}

#[tokio::test(flavor = "multi_thread")]
async fn connections_that_reach_their_age_fail_no_request() {
    let more = ["--max-connection-age", "200ms"];
    let service = Service::start_with(&written(LIMITS), None, &more);
    let limiters = [service.port];
    let proxy = Proxy::start(filter(&limiters)).await;
    let (start, mut asked) = (tokio::time::Instant::now(), 0);
    // For 3 s, and on a slow machine until there were enough requests.
    while start.elapsed() < Duration::from_secs(3) || asked <= 100 {
        let status = proxy.get("/", &[("x-user", &asked.to_string())]).await.status;
        assert_eq!(status, 200, "{asked}");
        asked += 1;
    }
    // A failed call of the filter would have denied a request.
    let opened = proxy.counter("limiter.upstream_cx_total").await;
    assert!(opened >= 5, "{opened} connections");
}
