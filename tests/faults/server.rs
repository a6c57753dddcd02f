//! The server: axum with the layer over Redis, as an application has it. The control is the same
//! without the layer.

use std::{env, fs, net::SocketAddr};

use axum::{Router, middleware::map_response, response::Response, routing::get};
use bb8_redis::RedisConnectionManager;
use plimsoll::{
    Decision, Limiter, Policy, Quota, RateLimitLayer, RedisStore, Resilience, Rule, by,
    layer::Decisions, redis::RedisConfig, store::Source,
};
use plimsoll_testing::{
    role::{Role, end_of_input},
    web,
};

/// Units of each key; the window is long, so that what is admitted twice shows.
pub(crate) const LIMIT: u64 = 100;
/// The number of instances. While Redis is gone, the server enforces one part of this many.
pub(crate) const INSTANCES: u32 = 2;

const STORE: &str = "PLIMSOLL_TEST_STORE";
const CONTROL: &str = "none";
/// A variable with which the server asks Redis each time, however often that fails.
pub(crate) const SURE: (&str, &str) = ("PLIMSOLL_TEST_BREAKER", "none");

/// A variable with which the server has 20 connections to Redis.
pub(crate) const MANY_CONNECTIONS: (&str, &str) = ("PLIMSOLL_TEST_CONNECTIONS", "many");
/// A variable with which the server hands the store a pool of the application's.
pub(crate) const POOL: (&str, &str) = ("PLIMSOLL_TEST_POOL", "bb8");
/// The path of the certificate of an authority that the server trusts.
pub(crate) const AUTHORITY: &str = "PLIMSOLL_TEST_AUTHORITY";

/// The role of the server's process.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "a role: another test starts it"]
async fn server() {
    let store = env::var(STORE).expect("a role");
    let app = Router::new().route("/", get(|| async { "hello" }));
    let app = if store == CONTROL { app } else { limited(app, &store).await };
    let address = web::serve(app).await;
    println!("\nlistening on {address}");
    end_of_input().await;
}

/// Returns a store over what [`Serving::start`] describes.
pub(crate) async fn connect(store: &str) -> RedisStore {
    let mut config = RedisConfig::default();
    if env::var(MANY_CONNECTIONS.0).is_ok() {
        config = config.connections(20);
    }
    if let Ok(path) = env::var(AUTHORITY) {
        config = config.root_certificates(fs::read(path).expect("a certificate"));
    }
    let words: Vec<&str> = store.split(' ').collect();
    let store = match words[..] {
        ["sentinel", name, ref sentinels @ ..] => {
            RedisStore::connect_with(
                RedisConfig::sentinel(sentinels.iter().copied(), name).with_settings(config),
            )
            .await
        }
        ["cluster", ref nodes @ ..] => {
            RedisStore::connect_with(
                RedisConfig::cluster(nodes.iter().copied()).with_settings(config),
            )
            .await
        }
        _ if env::var(POOL.0).is_ok() => {
            let manager = RedisConnectionManager::new(store).expect("a URL");
            let pool = bb8::Pool::builder().build(manager).await.expect("a pool");
            RedisStore::connect_with(RedisConfig::pool(pool).with_settings(config)).await
        }
        _ => RedisStore::connect_with(RedisConfig::url(store).with_settings(config)).await,
    };
    store.expect("a store")
}

async fn limited(app: Router, store: &str) -> Router {
    let store = connect(store).await;
    let mut resilience = Resilience::default().instances(INSTANCES);
    if env::var(SURE.0).is_ok() {
        resilience = resilience.without_breaker();
    }
    let limiter = Limiter::with_resilience(store, resilience);
    let quota: Quota = format!("{LIMIT}/h token-bucket({LIMIT})").parse().expect("a quota");
    let rule = Rule::new(Policy::new("api", quota).expect("a name"), by::header("x-api-key"));
    let app = app.layer(RateLimitLayer::new(limiter, rule).visible());
    app.layer(map_response(show_source)).route("/blocking", get(blocking))
}

/// Handles a request with a blocking task, as applications do to read a file or to resolve a name.
async fn blocking() -> &'static str {
    tokio::task::spawn_blocking(|| "done").await.expect("no panic")
}

/// Tells the client who decided.
pub(crate) async fn show_source(mut response: Response) -> Response {
    let decided = response.extensions().get::<Decisions>();
    let decision = decided.and_then(|decided| decided.decisions().next());
    let source = match decision.map(Decision::source) {
        Some(Source::Shared) => "shared",
        Some(Source::Fallback) => "fallback",
        Some(Source::Cache) => "cache",
        _ => "none",
    };
    response.headers_mut().insert("x-source", http::HeaderValue::from_static(source));
    response
}

/// A server's process, and where it listens.
pub(crate) struct Serving {
    pub(crate) role: Role,
    pub(crate) address: SocketAddr,
}

impl Serving {
    /// `store` is a URL; `sentinel`, the name of a primary and the URLs of sentinels; or `cluster` and
    /// the URLs of nodes.
    pub(crate) fn start(store: &str, environment: &[(&str, &str)]) -> Self {
        let environment: Vec<_> = environment.iter().copied().chain([(STORE, store)]).collect();
        let mut role = Role::start("server::server", &environment);
        let address = role.says("listening on").parse().expect("an address");
        Self { role, address }
    }

    pub(crate) fn control() -> Self {
        Self::start(CONTROL, &[])
    }
}
