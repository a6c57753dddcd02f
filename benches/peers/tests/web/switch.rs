//! One line switches the limits of a router on and off.

use axum::{Router, routing::get};
use plimsoll::{Limiter, Quota, RateLimitLayer};

use crate::{ask, serve};

fn limits() -> RateLimitLayer {
    RateLimitLayer::per_ip(Limiter::in_memory(), Quota::per_hour(1)).unwrap()
}

#[tokio::test]
async fn limits_are_switched_off_in_each_place_of_a_router() {
    let app = || Router::new().route("/", get(|| async { "hello" }));
    let routes: [fn(Router, RateLimitLayer) -> Router; 2] =
        [|app, layer| app.layer(layer), |app, layer| app.route_layer(layer)];
    for add in routes {
        for (enabled, expected) in [(true, [200, 429, 429]), (false, [200; 3])] {
            let address = serve(add(app(), limits().enabled(enabled))).await;
            for (position, status) in expected.into_iter().enumerate() {
                let (actual, headers) = ask(address, "GET /", &[]).await;
                assert_eq!(actual, status, "enabled: {enabled}, request {position}");
                assert_eq!(headers.contains_key("ratelimit"), enabled);
            }
        }
    }
}
