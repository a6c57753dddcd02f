//! `by::path_param` charges the parameter that the handler sees, for any path that axum routes.
#![no_main]

use std::task::{Context, Poll, Waker};

use axum::{
    Router,
    body::Body,
    extract::{RawPathParams, Request},
    routing::get,
};
use http::Uri;
use libfuzzer_sys::fuzz_target;
use plimsoll::{Key, Limiter, Policy, Quota, RateLimitLayer, Rule, by, layer::Decisions};
use tower::ServiceExt;

/// Panics if the key that was charged is not the parameter.
async fn handler(decided: Decisions, params: RawPathParams) {
    let expected = params.iter().filter(|(name, _)| *name == "id").last();
    let expected = expected.map_or(Key::ANONYMOUS, |(_, value)| Key::from(value));
    let mut outcomes = decided.decisions().next().expect("a decision").outcomes();
    assert_eq!(*outcomes.next().expect("a charge").charge().key(), expected);
}

thread_local! {
    static APP: Router = {
        // A cost of 0 reads the standing of a key and keeps nothing.
        let rule = Rule::new(Policy::new("p", Quota::per_minute(1)).unwrap(), by::path_param("id"));
        let layer = RateLimitLayer::new(Limiter::in_memory(), rule.cost(|_| 0)).visible();
        let inner = Router::new().route("/{id}", get(handler)).route("/y_{other}/{*id}", get(handler));
        Router::new()
            .route("/users/{id}", get(handler))
            .route("/user_{id}", get(handler))
            .route("/none/{other}", get(handler))
            .route("/files/{*id}", get(handler))
            .nest("/n/{zone}", Router::new().route("/x_{id}", get(handler)))
            .layer(layer.clone())
            .nest_service("/s/{id}", inner.layer(layer))
    };
}

fuzz_target!(|path: &[u8]| {
    let Ok(uri) = Uri::try_from(path) else { return };
    if !uri.path().starts_with('/') {
        return;
    }
    let mut request = Request::new(Body::empty());
    *request.uri_mut() = uri;
    let mut future = Box::pin(APP.with(Router::clone).oneshot(request));
    let Poll::Ready(Ok(response)) = future.as_mut().poll(&mut Context::from_waker(Waker::noop()))
    else {
        panic!("it waits")
    };
    // 400 is axum's answer to parameters that are not UTF-8.
    assert!(matches!(response.status().as_u16(), 200 | 400 | 404), "{}", response.status());
});
