//! An axum server with this crate, and two with other limiters over Redis. Each key may spend 50 units a
//! second, with a burst of 50. The others are configured as their own documentation shows for a service
//! that must survive an outage.

use std::{net::SocketAddr, sync::Arc, time::Duration};

use axum::{Router, body::Body, routing::get};
use http::{Request, Response};
use plimsoll::{Limiter, Policy, RateLimitLayer, RedisStore, Rule, by, redis::RedisConfig};
use plimsoll_testing::web::serve;
use redis::aio::ConnectionManagerConfig;
use tower_rate_limit_redis::KeyResolver;
use tower_rate_tier::{
    CircuitBreaker, Quota, RateTier, RedisStorage, TierIdentity, TierLimitLayer,
    storage::memory::MemoryStorage,
};

/// The units of a key in a second, and its burst.
pub(crate) const LIMIT: u32 = 50;

/// The header that names the key.
pub(crate) const HEADER: &str = "x-api-key";

/// The names of the limiters, in the order of [`start`].
pub(crate) const NAMES: [&str; 4] =
    ["plimsoll", "tower-rate-tier", "tower-rate-limit-redis", "no limiter"];

fn app() -> Router {
    Router::new().route("/", get(|| async { "hello" }))
}

/// Starts the servers over one Redis, and one without a limiter, which shows the waits of the machine.
pub(crate) async fn start(url: &str) -> [SocketAddr; 4] {
    let [ours, tier, plain] = [ours(url).await, tier(url).await, plain(url).await];
    [serve(ours).await, serve(tier).await, serve(plain).await, serve(app()).await]
}

/// Returns an application with the defaults of this crate.
async fn ours(url: &str) -> Router {
    let quota = format!("{LIMIT}/s token-bucket({LIMIT})");
    let policy = Policy::new("api", quota).expect("valid");
    let store = RedisStore::connect_with(RedisConfig::url(url)).await.expect("a store");
    app().layer(RateLimitLayer::new(Limiter::new(store), Rule::new(policy, by::header(HEADER))))
}

/// Returns an application with tower-rate-tier: a circuit breaker, and memory behind it.
async fn tier(url: &str) -> Router {
    let client = redis::Client::open(url).expect("a URL");
    let config = ConnectionManagerConfig::new();
    let connection = client.get_connection_manager_lazy(config).expect("a connection");
    let storage = CircuitBreaker::new(RedisStorage::new(connection), MemoryStorage::new());
    let tiers = RateTier::builder()
        .tier("all", Quota::per_second(LIMIT))
        .storage(Arc::new(storage))
        .build();
    let layer = TierLimitLayer::new(tiers).identifier_fn(|headers| {
        let key = headers.get(HEADER)?.to_str().ok()?;
        Some(TierIdentity::new(key, "all"))
    });
    app().layer(layer)
}

/// The key of a request, for tower-rate-limit-redis.
#[derive(Clone)]
struct ByHeader;

impl KeyResolver for ByHeader {
    type Key = String;
    type ErrorBody = Body;

    fn key<T>(&self, request: &Request<T>) -> Result<String, Response<Body>> {
        let key = request.headers().get(HEADER).and_then(|it| it.to_str().ok());
        key.map(str::to_owned).ok_or_else(|| Response::new(Body::empty()))
    }
}

/// Returns an application with tower-rate-limit-redis and the timeout of its example.
async fn plain(url: &str) -> Router {
    let client = redis_0_32::Client::open(url).expect("a URL");
    let connection = client.get_multiplexed_async_connection().await.expect("a connection");
    let layer = tower_rate_limit_redis::RateLimitLayer::builder()
        .conn(connection)
        .key_resolver(ByHeader)
        .capacity(LIMIT as u16)
        .emission_interval(Duration::from_secs(1) / LIMIT)
        .timeout(Duration::from_millis(300))
        .build();
    app().layer(layer)
}
