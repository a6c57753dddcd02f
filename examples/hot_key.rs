//! One busy key, decided in this process: `cargo run -p plimsoll-examples --features redis --example hot_key`.
//!
//! Most requests charge one key, "everybody". Each process leases units of it from Redis in bulk, and
//! decides the requests by itself until the lease ends. All processes together admit no more than the
//! quota. SIGTERM ends the server, and refunds the units that it has leased.
//!
//! - `REDIS_URL=redis://127.0.0.1/` is the server that all processes share.
//! - `QUOTA="60000/min leased(500ms)"` sets the quota.
//! - `ADDR=127.0.0.1:8080` sets the address to listen on; port 0 takes a free port.

use std::{env, error::Error, future::Future, net::SocketAddr};

use axum::{Router, http::request::Parts, routing::get};
use plimsoll::{
    Limiter, Policy, Quota, RateLimitLayer, RedisStore, Rule,
    by::{self, Or},
};
use tokio::{net::TcpListener, signal::unix};

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let url = env::var("REDIS_URL").unwrap_or_else(|_| "redis://127.0.0.1/".to_owned());
    let limiter = Limiter::new(RedisStore::connect(&url).await?);
    let quota = env::var("QUOTA").unwrap_or_else(|_| "60000/min leased(500ms)".to_owned());
    let policy = Policy::new("hot-key", quota.parse::<Quota>()?)?;
    let rule = Rule::new(policy, by::header("x-api-key").or(|_| "everybody")).cost(cost);

    let app = Router::new()
        .route("/", get(|| async { "ok\n" }))
        .route("/batch", get(|| async { "ok\n" }))
        .layer(RateLimitLayer::new(limiter.clone(), rule));

    // The handler is there before the first line is printed.
    let stop = terminated()?;
    let address = env::var("ADDR").unwrap_or_else(|_| "127.0.0.1:3000".to_owned());
    let listener = TcpListener::bind(&address).await?;
    println!("listening on http://{}", listener.local_addr()?);
    let app = app.into_make_service_with_connect_info::<SocketAddr>();
    axum::serve(listener, app).with_graceful_shutdown(stop).await?;
    // Without this, the units that are left would come back when they leave the window.
    limiter.close().await?;
    Ok(())
}

/// Returns the cost of a request: N for `/batch?cost=N`, and 1 for all others.
fn cost(request: &Parts) -> u64 {
    let query = request.uri.query().unwrap_or_default();
    let cost = query.split('&').find_map(|pair| pair.strip_prefix("cost="));
    cost.and_then(|it| it.parse().ok()).unwrap_or(1)
}

/// Waits for SIGTERM.
fn terminated() -> std::io::Result<impl Future<Output = ()> + Send + 'static> {
    let mut signal = unix::signal(unix::SignalKind::terminate())?;
    Ok(async move {
        signal.recv().await;
    })
}
