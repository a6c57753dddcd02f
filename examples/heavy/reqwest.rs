//! Paces the calls of a `reqwest` client: `cargo run -p plimsoll-heavy-examples --example reqwest`.
//!
//! The program starts a service that allows 3 requests a second, and calls it 7 times. The client does
//! not know that limit. It reads the answers of the service, and waits before the service would deny.

#[path = "../support/mod.rs"]
mod support;

use std::time::Duration;

use axum::{Router, routing::get};
use http::{Request, Response};
use plimsoll::{Limiter, Policy, Quota, RateLimitLayer, Rule, by};
use plimsoll_pace::PaceLayer;
use tokio::{net::TcpListener, time::Instant};
use tower::{ServiceBuilder, ServiceExt, service_fn};

#[tokio::main]
async fn main() -> support::Outcome<()> {
    let url = start_upstream().await?;

    // `reqwest` has types of its own, which convert from and into the types of `http`.
    let client = reqwest::Client::new();
    let send = service_fn(move |request: Request<reqwest::Body>| {
        let client = client.clone();
        async move { client.execute(request.try_into()?).await.map(Response::<reqwest::Body>::from) }
    });

    // Our own limit: at most 100 calls a second. The limits that the service announces count too.
    let ours = Policy::new("upstream", Quota::per_second(100))?;
    let pace = PaceLayer::new(
        support::limiter_from_env().await?,
        Rule::new(ours, by::constant("upstream")),
    )
    .wait(Duration::from_secs(10));
    let client = ServiceBuilder::new().layer(pace).service(send);

    let start = Instant::now();
    for call in 1..=7 {
        let request = Request::get(&url).body(reqwest::Body::default())?;
        let response = client.clone().oneshot(request).await?;
        // Back to the type of `reqwest`, for `text()` or `json()`.
        let response = reqwest::Response::from(response.map(reqwest::Body::wrap));
        let status = response.status();
        let text = response.text().await?;
        println!("call {call} after {:.1} s: {status}, {text}", start.elapsed().as_secs_f64());
    }
    Ok(())
}

/// Starts a service that allows 3 requests a second, and returns its address.
async fn start_upstream() -> support::Outcome<String> {
    let theirs = Policy::new("theirs", Quota::per_second(3))?;
    let layer = RateLimitLayer::new(Limiter::in_memory(), Rule::new(theirs, by::constant("all")));
    let app = Router::new().route("/", get(|| async { "hello" })).layer(layer);
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let url = format!("http://{}/", listener.local_addr()?);
    tokio::spawn(async { axum::serve(listener, app).await });
    Ok(url)
}
