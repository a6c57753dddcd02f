//! Chooses the limit by tier: `cargo run -p plimsoll-examples --example per_tier`.
//!
//! The API key names the tier: `free-*` has 10 requests a minute, `basic-*` 100, `premium-*` 1000.
//! Requests without a key of a known tier have 5 a minute for each address.
//!
//! For brevity the example trusts the key, so a client that invents `free-1`, `free-2` and so on gets
//! a fresh quota each time. A real service verifies the key in an earlier layer, which puts the
//! account and its tier into the request's extensions.

mod support;

use axum::{Router, routing::get};
use http::request::Parts;
use plimsoll::{
    Key, Policy, Quota, RateLimitLayer,
    by::{self, Or},
    key::Identity,
    layer::Decisions,
    rule::Tiers,
};

#[tokio::main]
async fn main() -> support::Outcome<()> {
    let limiter = support::limiter_from_env().await?;
    let tiers = Tiers::new(Policy::new("anonymous", Quota::per_minute(5))?)
        .tier("free", Policy::new("free", Quota::per_minute(10))?)
        .tier("basic", Policy::new("basic", Quota::per_minute(100))?)
        .tier("premium", Policy::new("premium", Quota::per_minute(1_000))?);

    // Charge the key if its tier is known, and the address otherwise.
    let client = known_key.or(by::peer_ip());
    let layer = RateLimitLayer::new(limiter, tiers.rule(tier, client)).visible();

    let app = Router::new().route("/", get(hello)).layer(layer);
    support::serve(app).await
}

async fn hello(decided: Decisions) -> String {
    let policy = decided.binding().map_or("none", |binding| binding.charge().policy().name());
    format!("policy {policy}, {} left\n", decided.remaining().unwrap_or(0))
}

/// Returns the part of the API key before the first `-`, if it is a tier.
fn tier(parts: &Parts) -> Option<&'static str> {
    let (tier, _) = parts.headers.get("x-api-key")?.to_str().ok()?.split_once('-')?;
    ["free", "basic", "premium"].into_iter().find(|known| *known == tier)
}

/// Returns the API key as the identity, if its tier is known.
fn known_key(parts: &Parts) -> Identity {
    Identity::from(tier(parts).and_then(|_| parts.headers.get("x-api-key")).map(Key::from))
}
