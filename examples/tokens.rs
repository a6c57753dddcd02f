//! Charges the number of tokens that were sent: `cargo run -p plimsoll-examples --example tokens`.
//!
//! The answer of a language model costs one unit per token, and the number is known only at its end.
//! `GET /chat?n=30` streams 30 tokens, one every 10 ms. The rule charges an estimate of 50 units
//! first, so that concurrent answers cannot exceed the limit. It settles the real number when the body
//! ends, also if the client disconnects.
//!
//! `GET /balance` spends nothing and returns the units left of 200 an hour.

mod support;

use std::{convert::Infallible, time::Duration};

use axum::{
    Router,
    body::{Body, Bytes},
    extract::{RawQuery, State},
    response::Response,
    routing::get,
};
use futures_util::stream;
use http::request::Parts;
use plimsoll::{Key, Limiter, Policy, Quota, RateLimitLayer, Rule, layer::Tally};

const ESTIMATE: u64 = 50;

#[derive(Clone)]
struct App {
    limiter: Limiter,
    tokens: Policy,
}

#[tokio::main]
async fn main() -> support::Outcome<()> {
    let limiter = support::limiter_from_env().await?;
    let tokens = Policy::new("tokens", Quota::per_hour(200))?.with_unit("tokens")?;
    let rule = Rule::new(tokens.clone(), account).cost(|_| ESTIMATE).settle_tally();
    let app = Router::new()
        .route("/chat", get(chat))
        .route_layer(RateLimitLayer::new(limiter.clone(), rule))
        .route("/balance", get(balance))
        .with_state(App { limiter, tokens });
    support::serve(app).await
}

/// Returns the account to charge. In a real service, an authentication layer has verified it.
fn account(parts: &Parts) -> Key {
    parts.headers.get("x-account").map_or(Key::ANONYMOUS, Key::from)
}

async fn chat(RawQuery(query): RawQuery) -> Response {
    let n = query.as_deref().and_then(|query| query.strip_prefix("n=")?.parse().ok()).unwrap_or(10);
    let tally = Tally::new();
    let counted = tally.clone();
    let answer = stream::unfold(0, move |sent| {
        let counted = counted.clone();
        async move {
            if sent == n {
                return None;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
            counted.add(1);
            Some((Ok::<_, Infallible>(Bytes::from(format!("token{sent} "))), sent + 1))
        }
    });
    let mut response = Response::new(Body::from_stream(answer));
    // The layer takes the tally from the extensions, and settles its count when the body is dropped.
    response.extensions_mut().insert(tally);
    response
}

async fn balance(State(app): State<App>, request: axum::extract::Request) -> String {
    let (parts, _) = request.into_parts();
    match app.limiter.peek(app.tokens.charge(account(&parts), 1)).await {
        Ok(decision) => {
            let left = decision.binding().map_or(0, |binding| binding.standing().remaining);
            format!("{left}\n")
        }
        Err(error) => format!("unknown: {error}\n"),
    }
}
