//! The first app of a newcomer: the shortest snippet, served in the way in which axum's own examples serve.

use std::net::SocketAddr;

use axum::{
    Router, body::Body, extract::connect_info::MockConnectInfo, http::Request, routing::get,
};
use plimsoll::{
    Limiter, Policy, Quota, RateLimitLayer, Rule,
    by::{self, Or},
};
use plimsoll_testing::web::{Reply, http1, serve};
use tokio::net::TcpListener;
use tower::ServiceExt;

fn app() -> Router {
    let layer = RateLimitLayer::per_ip(Limiter::in_memory(), Quota::per_minute(2)).unwrap();
    Router::new().route("/", get(|| async { "hello" })).layer(layer)
}

/// An app with a rule of its own, and a layer with other settings.
fn app_by(
    key: impl Fn(&http::request::Parts) -> plimsoll::key::Identity + Send + Sync + 'static,
    settings: impl Fn(RateLimitLayer) -> RateLimitLayer,
) -> Router {
    let rule = Rule::new(Policy::new("api", Quota::per_minute(2)).unwrap(), key);
    let layer = settings(RateLimitLayer::new(Limiter::in_memory(), rule));
    Router::new().route("/", get(|| async { "hello" })).layer(layer)
}

/// Serves an app without the addresses of its peers.
async fn serve_plainly(app: Router) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move { axum::serve(listener, app).await });
    address
}

/// Returns the replies to three requests, of which the quota allows two.
async fn three_requests(address: SocketAddr) -> [Reply; 3] {
    let mut client = http1(address).await;
    [client.get("/").await, client.get("/").await, client.get("/").await]
}

async fn statuses(app: Router) -> [u16; 3] {
    three_requests(serve_plainly(app).await).await.map(|reply| reply.status)
}

#[tokio::test]
async fn without_peer_addresses_the_first_request_says_what_is_missing() {
    for reply in three_requests(serve_plainly(app()).await).await {
        assert_eq!(reply.status, 500);
        assert_eq!(reply.headers["content-type"], "application/problem+json");
        assert_eq!(reply.headers["cache-control"], "no-store");
        assert!(!reply.headers.contains_key("retry-after"), "waiting does not help");
        let document: serde_json::Value = serde_json::from_slice(&reply.body).unwrap();
        assert_eq!(
            (&document["status"], &document["title"]),
            (&500.into(), &"No peer address".into())
        );
        let detail = document["detail"].as_str().unwrap();
        for words in ["into_make_service_with_connect_info", "MockConnectInfo", "by::anonymous()"] {
            assert!(detail.contains(words), "{words} in {detail}");
        }
    }
}

#[tokio::test]
async fn with_peer_addresses_the_snippet_works() {
    let replies = three_requests(serve(app()).await).await;
    assert_eq!(replies.map(|reply| reply.status), [200, 200, 429]);
}

/// In tests of an app, axum's own layer stands for the connection.
#[tokio::test]
async fn mocked_peer_addresses_are_charged() {
    let status = async |app: &Router| {
        app.clone().oneshot(Request::get("/").body(Body::empty()).unwrap()).await.unwrap().status()
    };
    let limited = app();
    let [one, other] = [1, 2].map(|host| {
        limited.clone().layer(MockConnectInfo(SocketAddr::from(([192, 0, 2, host], 4711))))
    });
    assert_eq!([status(&one).await, status(&one).await, status(&one).await], [200, 200, 429]);
    assert_eq!(status(&other).await, 200);
    assert_eq!(status(&limited).await, 500);
}

#[tokio::test]
async fn one_shared_key_is_asked_for_by_name() {
    let plain = |layer: RateLimitLayer| layer;
    let shared = || by::peer_ip().or(by::constant("all clients"));
    assert_eq!(statuses(app_by(by::peer_ip().or(by::anonymous()), plain)).await, [200, 200, 429]);
    assert_eq!(statuses(app_by(shared(), plain)).await, [200, 200, 429]);
    // An unknown client is no mistake of the set-up, so the next extractor decides.
    assert_eq!(
        statuses(app_by(by::peer_ip().or(by::header("x-api-key")), plain)).await,
        [200, 200, 429]
    );
    assert_eq!(statuses(app_by(by::header("x-api-key").or(by::peer_ip()), plain)).await, [500; 3]);
}

/// The address of a peer that is joined with another key is missing as well.
#[tokio::test]
async fn a_pair_needs_the_address_too() {
    let pair = by::And::and(by::constant("alice"), by::peer_ip());
    assert_eq!(statuses(app_by(pair, |layer| layer)).await, [500; 3]);
    let pair = by::And::and(by::peer_ip(), by::header("x-api-key"));
    assert_eq!(statuses(app_by(pair, |layer| layer)).await, [500; 3]);
}

/// A closure that finds no address is a decision of the app, not a mistake of its set-up.
#[tokio::test]
async fn a_closure_of_the_app_may_find_no_peer() {
    let source = by::ClientIp::peer().peer_from(|_| None);
    assert_eq!(statuses(app_by(by::client_ip(source), |layer| layer)).await, [200, 200, 429]);
}

#[tokio::test]
async fn a_shadow_rejects_no_request_and_exempt_requests_need_no_peer() {
    assert_eq!(statuses(app_by(by::peer_ip(), RateLimitLayer::shadow)).await, [200; 3]);
    let exempt = |layer: RateLimitLayer| layer.exempt(|_| true);
    assert_eq!(statuses(app_by(by::peer_ip(), exempt)).await, [200; 3]);
}

#[tokio::test]
async fn other_formats_of_the_response_say_it_too() {
    let [reply, ..] =
        three_requests(serve_plainly(app_by(by::peer_ip(), RateLimitLayer::plain_text)).await)
            .await;
    assert_eq!(reply.status, 500);
    assert!(reply.body.starts_with(b"No peer address reaches the rate limit."), "{:?}", reply.body);
    // It is a mistake in the program, for which no closure of the application is called.
    let closures = |layer: RateLimitLayer| {
        let layer = layer.plain_text().on_denied(|_, _| "closure");
        layer.on_over_capacity(|_, _| "closure").on_unavailable(|_, _| "closure")
    };
    let [reply, ..] = three_requests(serve_plainly(app_by(by::peer_ip(), closures)).await).await;
    assert_eq!(reply.status, 500);
    assert!(reply.body.starts_with(b"No peer address reaches the rate limit."), "{:?}", reply.body);
}
