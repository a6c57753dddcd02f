//! The event that lists the limits of a layer when it is first used.
#![cfg(feature = "tracing")]

use std::convert::Infallible;

use http::{Request, Response};
use plimsoll::{
    Error, Limiter, MemoryStore, OnFailure, Policy, RateLimitLayer, Resilience, Rule, by,
    error::ErrorKind,
    memory::MemoryConfig,
    rule::Tiers,
    store::{Answer, Request as StoreRequest, Store},
};
use plimsoll_testing::log::Log;
use tower::{Layer, service_fn};

fn policy(name: &str, quota: &str) -> Policy {
    Policy::new(name, quota).unwrap()
}

fn rule(name: &str, quota: &str) -> Rule {
    Rule::new(policy(name, quota), by::constant("all"))
}

/// Uses the layer, as a router does for each of its routes.
fn apply(layer: &RateLimitLayer) {
    let inner =
        service_fn(|_: Request<()>| async { Ok::<_, Infallible>(Response::new(String::new())) });
    let _ = layer.layer(inner);
}

/// Returns the only event that is emitted when the layer is used for three routes.
fn line(layer: RateLimitLayer) -> String {
    let log = Log::default();
    let _guard = tracing::subscriber::set_default(log.clone());
    for _ in 0..3 {
        apply(&layer.clone());
    }
    let events = log.take();
    let [event] = &events[..] else { panic!("{events:#?}") };
    event.clone()
}

#[test]
fn one_line_names_the_policies_and_the_store() {
    let layer = RateLimitLayer::new(Limiter::in_memory(), rule("api", "100/min"));
    assert_eq!(
        line(layer),
        "INFO message=api 100/min sliding-log; store memory (1000000 keys, 256 MiB)"
    );

    let small = MemoryConfig::default().max_keys(50_000).max_bytes(16 << 20);
    let paid = policy("paid", "9/s token-bucket(20)");
    let tiers: Tiers = Tiers::new(policy("free", "1/s"))
        .tier("gold", paid.clone())
        .tier("silver", paid)
        .tier("basic", policy("basic", "2/s"));
    let tiered = tiers.rule(|_| None, by::constant("all"));
    let other = policy("other", "1/s");
    let chosen = Rule::tiered(move |_| other.clone(), by::constant("all"));
    let layer = RateLimitLayer::new(Limiter::new(MemoryStore::new(small)), rule("api", "100/min"))
        .and(rule("burst", "50/s token-bucket(20)").on_failure(OnFailure::Deny))
        .and(rule("next", "5/10s fixed-window").shadow())
        .and(tiered)
        .and(chosen);
    assert_eq!(
        line(layer),
        "INFO message=api 100/min sliding-log, \
         burst 50/s token-bucket(20) (denies if the store fails), \
         next 5/10s fixed-window (shadow), \
         one of (paid 9/s token-bucket(20), basic 2/s sliding-log, free 1/s sliding-log), \
         a policy chosen per request; \
         store memory (50000 keys, 16 MiB)"
    );
}

#[derive(Debug)]
struct Remote;

impl Store for Remote {
    fn call(&self, _: StoreRequest<'_>, _: Option<std::time::Instant>) -> Answer {
        Answer::ready(Err(Error::new(ErrorKind::Unavailable, "down")))
    }
}

#[test]
fn one_line_names_the_resilience_of_a_remote_store() {
    let resilience = Resilience::default().instances(4);
    let layer =
        RateLimitLayer::new(Limiter::with_resilience(Remote, resilience), rule("api", "100/min"));
    assert_eq!(
        line(layer),
        "INFO message=api 100/min sliding-log; store events::first_start::Remote; deadline 50ms, breaker, \
         deny cache, fallback 1/4 of each limit in memory (100000 keys, 64 MiB)"
    );
    let bare = Limiter::with_resilience(Remote, Resilience::none());
    let line = line(RateLimitLayer::new(bare, rule("api", "1/s")));
    assert!(line.ends_with("store events::first_start::Remote; no resilience"), "{line}");
}

#[test]
fn a_layer_that_is_switched_off_says_so() {
    let layer = RateLimitLayer::new(Limiter::in_memory(), rule("api", "100/min")).enabled(false);
    assert!(line(layer).starts_with("INFO message=switched off: api 100/min sliding-log;"));
}

/// A setting makes another layer. A layer that was used without a subscriber is reported later.
#[test]
fn each_layer_has_a_line_of_its_own() {
    let base = RateLimitLayer::new(Limiter::in_memory(), rule("api", "100/min"));
    apply(&base);
    let log = Log::default();
    let _guard = tracing::subscriber::set_default(log.clone());
    let stricter = base.clone().and(rule("all", "5/s"));
    for layer in [&base, &stricter, &base.clone(), &stricter, &base] {
        apply(layer);
    }
    let events = log.take();
    assert_eq!(events.len(), 2, "{events:#?}");
    assert!(events[1].contains("api 100/min sliding-log, all 5/s sliding-log;"), "{events:#?}");
}

/// The line of a store around another store names both. It has no address, user or password.
#[cfg(feature = "redis-tls")]
#[tokio::test]
async fn redis_is_described_without_addresses() {
    use plimsoll::{RedisStore, redis::RedisConfig};

    let lazy = || RedisConfig::default().lazy(true).prefix("shop.limits").connections(1);
    let url = "rediss://hidden-user:hidden-password@hidden.host.invalid:6380/3";
    let stores = [
        (
            RedisStore::connect_with(RedisConfig::url("redis://hidden.host.invalid/").lazy(true))
                .await
                .unwrap(),
            "Redis (single server, database 0, 2 connections, prefix plim)",
        ),
        (
            RedisStore::connect_with(RedisConfig::url(url).with_settings(lazy())).await.unwrap(),
            "Redis (single server over TLS, database 3, 1 connection, prefix shop.limits)",
        ),
        (
            RedisStore::connect_with(
                RedisConfig::url("unix:///hidden/socket?user=hidden&db=5").with_settings(lazy()),
            )
            .await
            .unwrap(),
            "Redis (single server over a Unix socket, database 5, 1 connection, prefix shop.limits)",
        ),
        (
            RedisStore::connect_with(
                RedisConfig::sentinel([url], "redis://hidden-name/7").with_settings(lazy()),
            )
            .await
            .unwrap(),
            "Redis (Sentinel, database 7, 1 connection, prefix shop.limits)",
        ),
        (
            RedisStore::connect_with(RedisConfig::cluster([url]).with_settings(lazy()))
                .await
                .unwrap(),
            "Redis (cluster over TLS, 1 connection to each node, prefix shop.limits)",
        ),
    ];
    for (store, description) in stores {
        let line = line(RateLimitLayer::new(Limiter::new(store), rule("api", "100/min")));
        assert!(line.contains(&format!("; store {description}; deadline 50ms, ")), "{line}");
        assert!(!line.contains("hidden"), "{line}");
    }
}
