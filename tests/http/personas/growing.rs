//! A service that has outgrown one process: the same limit of 60,000 a minute, first in memory and then
//! in Redis.

use std::net::SocketAddr;

use axum::{
    Router, body::Body, extract::connect_info::MockConnectInfo, http::Request, routing::get,
};
use plimsoll::{Limiter, Policy, Quota, RateLimitLayer, RedisStore, Rule, by};
use plimsoll_testing::servers::Server;
use tower::ServiceExt;

/// The service. A request costs what its header says.
fn app(limiter: Limiter) -> Result<Router, plimsoll::Error> {
    let cost = |parts: &http::request::Parts| {
        let header = parts.headers.get("x-cost").and_then(|it| it.to_str().ok());
        header.and_then(|it| it.parse().ok()).unwrap_or(1)
    };
    let rule = Rule::new(Policy::new("api", Quota::per_minute(60_000))?, by::peer_ip()).cost(cost);
    Ok(Router::new()
        .route("/", get(|| async { "hello" }))
        .layer(RateLimitLayer::new(limiter, rule))
        .layer(MockConnectInfo(SocketAddr::from(([192, 0, 2, 1], 4711)))))
}

/// Returns the statuses of requests that cost 20,000, 20,000, 19,999, 2, 1 and 1 units.
async fn statuses(app: &Router) -> Vec<u16> {
    let mut statuses = Vec::new();
    for cost in [20_000, 20_000, 19_999, 2, 1, 1] {
        let request = Request::get("/").header("x-cost", cost).body(Body::empty()).unwrap();
        statuses.push(app.clone().oneshot(request).await.unwrap().status().as_u16());
    }
    statuses
}

#[tokio::test]
async fn a_large_limit_moves_to_redis() -> Result<(), plimsoll::Error> {
    let exact = [200, 200, 200, 429, 200, 429];
    assert_eq!(statuses(&app(Limiter::in_memory())?).await, exact);

    let server = Server::start();
    let url = server.url();
    let one = app(Limiter::new(RedisStore::connect(&url).await?))?;
    let other = app(Limiter::new(RedisStore::connect(&url).await?))?;
    assert_eq!(statuses(&one).await, exact);
    assert_eq!(statuses(&other).await, [429; 6], "both instances share the limit");
    Ok(())
}
