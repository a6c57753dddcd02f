//! Limits single routes and the sum of all routes: `cargo run -p plimsoll-examples --example per_route`.
//!
//! Each client may request `/search` 10 times a minute, `/login` 3 times a minute, and all routes
//! together 60 times a minute. A request that one limit denies is not charged to the other.

mod support;

use axum::{Router, routing::get};
use plimsoll::{Policy, Quota, RateLimitLayer, Rule, by, route};

#[tokio::main]
async fn main() -> support::Outcome<()> {
    let limiter = support::limiter_from_env().await?;
    let overall = Policy::new("overall", Quota::per_minute(60))?;
    let search = Policy::new("search", Quota::per_minute(10))?;
    let login = Policy::new("login", Quota::per_minute(3))?;

    // The rules of one layer are decided in one step.
    let layer = RateLimitLayer::new(limiter, Rule::new(overall, by::peer_ip()))
        .and(Rule::new(search, by::peer_ip()).only(route::is("/search")))
        .and(Rule::new(login, by::peer_ip()).only(route::is("/login")));

    let app = Router::new()
        .route("/", get(|| async { "hello\n" }))
        .route("/search", get(|| async { "nothing found\n" }))
        .route("/login", get(|| async { "name and password?\n" }).post(|| async { "welcome\n" }))
        .layer(layer);
    support::serve(app).await
}
