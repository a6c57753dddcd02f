//! A rate-limited axum server with metrics for Prometheus:
//! `cargo run -p plimsoll-heavy-examples --example prometheus`.
//!
//! - `/` costs 1 unit; each address has 5 in any 10 seconds.
//! - `/metrics` is the path that Prometheus scrapes. It is not limited. A service on the Internet serves it on
//!   another port.

use std::{env, error::Error, net::SocketAddr};

use axum::{Router, routing::get};
use metrics_exporter_prometheus::PrometheusBuilder;
use plimsoll::{Limiter, Policy, Quota, RateLimitLayer, Rule, by};
use tokio::net::TcpListener;

/// Upper bounds of the buckets of histograms, in seconds. The deadline of a check is 0.05 s.
const BUCKETS: [f64; 8] = [0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1];

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    // The recorder comes first, so that it receives all metrics of the limiter.
    let prometheus = PrometheusBuilder::new().set_buckets(&BUCKETS)?.install_recorder()?;

    let api = Policy::new("api", "5/10s".parse::<Quota>()?)?;
    let limit = RateLimitLayer::new(Limiter::in_memory(), Rule::new(api, by::peer_ip()));
    let app = Router::new()
        .route("/", get(|| async { "hello\n" }))
        .route_layer(limit)
        .route("/metrics", get(move || async move { prometheus.render() }));

    let address = env::var("ADDR").unwrap_or_else(|_| "127.0.0.1:3000".to_owned());
    let listener = TcpListener::bind(&address).await?;
    println!("listening on http://{}", listener.local_addr()?);
    axum::serve(listener, app.into_make_service_with_connect_info::<SocketAddr>()).await?;
    Ok(())
}
