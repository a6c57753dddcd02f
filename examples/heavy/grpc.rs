//! Limits gRPC and HTTP with one budget: `cargo run --features tonic --example grpc`.
//!
//! The server offers tonic's health service and `GET /` on one port. Each client may send 5 requests
//! in any 10 seconds over both protocols together. A gRPC client over the limit receives
//! RESOURCE_EXHAUSTED with a retry delay, an HTTP client receives 429.

#[path = "../support/mod.rs"]
mod support;

use axum::routing::get;
use tollgate::{Policy, Quota, RateLimitLayer, Rule, by};
use tonic::service::Routes;
use tonic_health::{ServingStatus, server::health_reporter};

#[tokio::main]
async fn main() -> support::Outcome<()> {
    let limiter = support::limiter_from_env()?;
    let clients = Policy::new("clients", "5/10s".parse::<Quota>()?)?;
    let layer = RateLimitLayer::new(limiter, Rule::new(clients, by::peer_ip()));

    // Any tonic service works in its place.
    let (reporter, health) = health_reporter();
    reporter.set_service_status("demo", ServingStatus::Serving).await;

    // The layer recognises gRPC requests by their content type.
    let app = Routes::new(health)
        .into_axum_router()
        .route("/", get(|| async { "hello over HTTP\n" }))
        .layer(layer);
    support::serve(app).await
}
