//! Overrides that are shared through Redis.

mod cuts;
mod cutter;
mod fleet;
mod hits;
mod store;

use std::time::{Duration, SystemTime};

use plimsoll::{Limiter, Policy, RedisStore, redis::RedisConfig};
use plimsoll_control::{
    KeyType, Origin, Override, OverrideKind, Overrides, OverridesConfig, Registry,
};
use plimsoll_testing::servers::{PATIENCE, Server};

/// An instance of a service.
struct Instance {
    limiter: Limiter,
    policy: Policy,
    overrides: Overrides,
    registry: Registry,
}

/// Starts an instance with the policy `api`, whose keys are integers.
async fn instance(url: &str) -> Instance {
    let registry = Registry::default();
    let policy = Policy::new("api", "1/min").expect("a policy");
    registry.register(policy.clone(), Origin::Code, KeyType::Integer).expect("a new name");
    let config = RedisConfig::url(url).connect_timeout(PATIENCE).response_timeout(PATIENCE);
    let limiter = Limiter::new(RedisStore::connect_with(config).await.expect("a store"));
    let overrides =
        Overrides::connect(OverridesConfig::new(url, "plim"), registry.clone(), limiter.clone())
            .await;
    Instance { limiter, policy, overrides: overrides.expect("an answer"), registry }
}

fn quota(text: &str) -> OverrideKind {
    OverrideKind::Quota(text.parse().expect("a quota"))
}

fn new(key: Option<u64>, kind: OverrideKind, left: Option<Duration>) -> Override {
    let mut new = Override::new("api", kind, "dora", "a test");
    new.key = key.map(|key| key.to_string());
    new.until = left.map(|left| wall_time() + left);
    new
}

#[allow(clippy::disallowed_methods, reason = "an operator writes the time of the wall")]
fn wall_time() -> SystemTime {
    SystemTime::now()
}

/// Connects a process that reads the overrides and applies none, because it has no policies.
async fn reader(server: &Server) -> Overrides {
    connect(&server.url(), Registry::default()).await.show_keys()
}

/// Connects a process that applies the overrides of these policies.
async fn connect(url: &str, registry: Registry) -> Overrides {
    let connected =
        Overrides::connect(OverridesConfig::new(url, "plim"), registry, Limiter::in_memory()).await;
    connected.expect("an answer")
}

/// Returns the overrides that are stored, as `<key>=<kind>`.
async fn stored(server: &Server) -> Vec<String> {
    shown(reader(server).await.list())
}

/// Returns overrides as `<key>=<kind>`.
fn shown(overrides: Vec<Override>) -> Vec<String> {
    let text = |it: Override| format!("{}={}", it.key.unwrap_or_else(|| "all".into()), it.kind);
    overrides.into_iter().map(text).collect()
}
