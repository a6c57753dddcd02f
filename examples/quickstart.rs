//! A rate-limited axum server: `cargo run -p plimsoll-examples --example quickstart`.
//!
//! Each client may spend 5 units in any 10 seconds. A client is identified by its `x-api-key`, or by
//! its address if it sends none.
//!
//! - `REDIS_URL=redis://127.0.0.1/` shares the budget among all processes with the same server. Add
//!   `--features redis`.
//! - `ADDR=127.0.0.1:8080` sets the address to listen on; port 0 takes a free port.

mod support;

use std::{env, net::SocketAddr};

use axum::{Router, routing::get};
use plimsoll::{
    Policy, Quota, RateLimitLayer, Rule,
    by::{self, Or},
    cost,
};
use tokio::net::TcpListener;

#[tokio::main]
async fn main() -> support::Outcome<()> {
    // `Limiter::in_memory()`, or a limiter over Redis if several processes share the units.
    let limiter = support::limiter_from_env().await?;
    let demo = Policy::new("demo", "5/10s".parse::<Quota>()?)?;
    let client = by::header("x-api-key").or(by::peer_ip());
    let costs = cost::by_route([("/expensive", 3), ("/huge", 6)], |_| 1);
    let rule = Rule::new(demo, client).cost(costs);

    let app = Router::new()
        .route("/", get(|| async { "1 unit spent\n" }))
        .route("/expensive", get(|| async { "3 units spent\n" }))
        .route("/huge", get(|| async { "never reached: 6 units are more than the quota holds\n" }))
        .route_layer(RateLimitLayer::new(limiter, rule))
        // The layer does not apply to routes that are added after it.
        .route("/health", get(|| async { "ok\n" }));

    let address = env::var("ADDR").unwrap_or_else(|_| "127.0.0.1:3000".to_owned());
    let listener = TcpListener::bind(&address).await?;
    let url = format!("http://{}", listener.local_addr()?);
    println!("listening on {url}");
    println!("5 units per 10 s and client; try:");
    println!("  curl -i {url}/            # 1 unit: 200, or 429 when the quota is spent");
    println!("  curl -i {url}/expensive   # 3 units");
    println!("  curl -i {url}/huge        # 6 units never fit: 403");
    println!("  curl -i {url}/health      # not limited");
    println!("  curl -i -H 'x-api-key: alice' {url}/");
    // `by::peer_ip` reads the address that this passes on.
    let app = app.into_make_service_with_connect_info::<SocketAddr>();
    axum::serve(listener, app).await?;
    Ok(())
}
