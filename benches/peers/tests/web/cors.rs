//! Preflights, and what a script of another origin can read of a denial.

use axum::{Router, routing::get};
use http::{HeaderMap, Method};
use plimsoll::{Limiter, Quota, RateLimitLayer, layer::Headers, route};
use tower_http::cors::{Any, CorsLayer};

use crate::{ask, serve};

const PREFLIGHT: [&str; 2] = ["origin: https://app.example", "access-control-request-method: GET"];
const ORIGIN: [&str; 1] = ["origin: https://app.example"];

fn limits() -> RateLimitLayer {
    RateLimitLayer::per_ip(Limiter::in_memory(), Quota::per_hour(1)).unwrap()
}

fn cors() -> CorsLayer {
    CorsLayer::new()
        .allow_origin(Any)
        .allow_methods([Method::GET])
        .expose_headers(Headers::default().names())
}

fn app() -> Router {
    Router::new().route("/", get(|| async { "hello" }))
}

fn exposed(headers: &HeaderMap) -> Vec<&str> {
    headers["access-control-expose-headers"].to_str().unwrap().split(',').collect()
}

#[tokio::test]
async fn with_cors_outside_preflights_are_free_and_scripts_can_read_denials() {
    let address = serve(app().layer(limits()).layer(cors())).await;
    for _ in 0..3 {
        let (status, headers) = ask(address, "OPTIONS /", &PREFLIGHT).await;
        assert_eq!(
            (status, &headers["access-control-allow-methods"]),
            (200, &"GET".parse().unwrap())
        );
    }
    assert_eq!(ask(address, "GET /", &ORIGIN).await.0, 200, "no preflight was charged");
    let (status, headers) = ask(address, "GET /", &ORIGIN).await;
    assert_eq!((status, &headers["access-control-allow-origin"]), (429, &"*".parse().unwrap()));
    let exposed = exposed(&headers);
    assert_eq!(exposed.len(), 6);
    for name in exposed {
        assert!(headers.contains_key(name), "the denial has each header that is exposed: {name}");
    }
    assert_eq!(headers["cache-control"], "no-store");
}

#[tokio::test]
async fn with_cors_inside_preflights_need_the_exemption() {
    let charged = serve(app().layer(cors()).layer(limits())).await;
    assert_eq!(ask(charged, "OPTIONS /", &PREFLIGHT).await.0, 200);
    let (status, headers) = ask(charged, "GET /", &ORIGIN).await;
    assert_eq!(status, 429, "the preflight was charged");
    assert!(!headers.contains_key("access-control-allow-origin"), "a script cannot read it");

    let exempt = serve(app().layer(cors()).layer(limits().exempt(route::is_preflight))).await;
    for _ in 0..3 {
        let (status, headers) = ask(exempt, "OPTIONS /", &PREFLIGHT).await;
        assert_eq!((status, headers.contains_key("ratelimit")), (200, false));
    }
    assert_eq!(ask(exempt, "GET /", &ORIGIN).await.0, 200);
    // A request that only looks like a preflight is charged.
    for (request, headers) in [
        ("OPTIONS /", &PREFLIGHT[..1]),
        ("OPTIONS /", &PREFLIGHT[1..]),
        ("OPTIONS /", &[]),
        ("GET /", &PREFLIGHT),
    ] {
        assert_eq!(ask(exempt, request, headers).await.0, 429, "{request} {headers:?}");
    }
}
