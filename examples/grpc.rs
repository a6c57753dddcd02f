//! gRPC and HTTP on one budget: `cargo run --example grpc`.
//!
//! tonic's health service and `GET /` on one port, 5 requests in 10 seconds for each client, however
//! they are made. A gRPC client that is over the limit sees RESOURCE_EXHAUSTED and how long to wait;
//! an HTTP client sees 429.

mod support;

use axum::routing::get;
use tollgate::{Policy, Quota, RateLimitLayer, Rule, by};
use tonic::service::Routes;
use tonic_health::{ServingStatus, server::health_reporter};

#[tokio::main]
async fn main() -> support::Outcome<()> {
    let limiter = support::limiter_from_env().await?;
    let clients = Policy::new("clients", "5/10s".parse::<Quota>()?)?;
    let layer = RateLimitLayer::new(limiter, Rule::new(clients, by::peer_ip()));

    let (reporter, health) = health_reporter();
    reporter.set_service_status("demo", ServingStatus::Serving).await;

    let app = Routes::new(health)
        .into_axum_router()
        .route("/", get(|| async { "hello over HTTP\n" }))
        .layer(layer);
    support::serve(app).await
}
