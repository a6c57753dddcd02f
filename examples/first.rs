//! The first program of the README. `ADDR` sets the address to listen on.

use std::net::SocketAddr;

use axum::{Router, routing::get};
use plimsoll::{Limiter, RateLimitLayer};

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let limit = RateLimitLayer::per_ip(Limiter::in_memory(), "100/min")?;
    let app = Router::new().route("/", get(|| async { "hello" })).layer(limit);

    let listener = tokio::net::TcpListener::bind(std::env::var("ADDR")?).await?;
    println!("listening on http://{}", listener.local_addr()?);
    // Gives the addresses of clients to the layer.
    let app = app.into_make_service_with_connect_info::<SocketAddr>();
    axum::serve(listener, app).await?;
    Ok(())
}
