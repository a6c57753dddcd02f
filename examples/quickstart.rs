//! A limited axum server, with nothing to install: `cargo run --example quickstart`.
//!
//! Each client (its `x-api-key`, else its address) may spend 5 units in any 10 seconds.
//! With `REDIS_URL=redis://127.0.0.1/` several processes share one budget.
//! `ADDR=127.0.0.1:8080` listens elsewhere; port 0 takes a free one.

use std::{env, error::Error, net::SocketAddr};

use axum::{Router, routing::get};
use tokio::net::TcpListener;
use tollgate::{
    Limiter, Policy, Quota, RateLimitLayer, Rule,
    by::{self, Or},
    store::RedisStore,
};

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    // Processes that use the same Redis share one budget.
    let limiter = match env::var("REDIS_URL") {
        Ok(url) => Limiter::new(RedisStore::connect(&url).await?),
        Err(_) => Limiter::in_memory(),
    };
    let demo = Policy::new("demo", "5/10s".parse::<Quota>()?)?;
    let rule = Rule::new(demo, by::header("x-api-key").or(by::peer_ip())).cost(|parts| match parts
        .uri
        .path()
    {
        "/expensive" => 3,
        "/huge" => 6,
        _ => 1,
    });

    let app = Router::new()
        .route("/", get(|| async { "1 unit spent\n" }))
        .route("/expensive", get(|| async { "3 units spent\n" }))
        .route("/huge", get(|| async { "never reached: 6 units are more than the quota holds\n" }))
        .route_layer(RateLimitLayer::new(limiter, rule))
        // Routes added after the layer are not limited.
        .route("/health", get(|| async { "ok\n" }));

    let address = env::var("ADDR").unwrap_or_else(|_| "127.0.0.1:3000".to_owned());
    let listener = TcpListener::bind(&address).await?;
    let url = format!("http://{}", listener.local_addr()?);
    println!("listening on {url}");
    println!("5 units per 10 s and client; try:");
    println!("  curl -i {url}/            # 1 unit: 200, or 429 when the quota is spent");
    println!("  curl -i {url}/expensive   # 3 units");
    println!("  curl -i {url}/huge        # 6 units can never be had: 403");
    println!("  curl -i {url}/health      # not limited");
    println!("  curl -i -H 'x-api-key: alice' {url}/");
    let app = app.into_make_service_with_connect_info::<SocketAddr>();
    axum::serve(listener, app).await?;
    Ok(())
}
