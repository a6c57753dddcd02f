//! Warnings of misuse: one for each mistake, and none for what is meant so.
#![cfg(all(feature = "axum", feature = "tracing"))]

use std::net::SocketAddr;

use axum::{Router, body::Body, routing::get};
use http::{Request, request::Parts};
use plimsoll::{Limiter, Policy, RateLimitLayer, Rule, by, cost, route};
use plimsoll_testing::{alone, log::Log};
use tower::ServiceExt;

/// The number of requests in which misuse is looked for.
const FIRST: usize = 1_000;

fn policy(name: &str) -> Policy {
    Policy::new(name, "1000000/h token-bucket(1000000)").unwrap()
}

fn layer(rule: Rule) -> RateLimitLayer {
    RateLimitLayer::new(Limiter::in_memory(), rule)
}

fn request(path: &str) -> Request<Body> {
    let mut request = Request::get(path).body(Body::empty()).unwrap();
    request.extensions_mut().insert(SocketAddr::from(([10, 0, 0, 1], 443)));
    request
}

/// Sends requests to a router, and returns the warnings so far.
async fn send(
    app: &Router,
    requests: impl IntoIterator<Item = Request<Body>>,
    log: &Log,
) -> Vec<String> {
    for request in requests {
        app.clone().oneshot(request).await.unwrap();
    }
    log.take().into_iter().filter(|event| event.contains("WARN")).collect()
}

fn same(path: &str, count: usize) -> impl Iterator<Item = Request<Body>> {
    (0..count).map(move |_| request(path))
}

fn routes() -> Router {
    Router::new()
        .route("/search", get(|| async {}))
        .route("/users/{id}", get(|| async {}))
        .route("/files/{*path}", get(|| async {}))
}

#[tokio::test]
async fn a_route_that_matches_nothing_is_reported_once_by_name() {
    let log = Log::default();
    let _guard = tracing::subscriber::set_default(log.clone());
    let rule = Rule::new(policy("calls"), by::constant("all"));
    let typo = rule.only(route::is("GET /serach"));
    let line = line!() - 1;
    // All clones of a layer count together: axum clones it for each route.
    let app = routes().layer(layer(typo));
    assert!(send(&app, same("/search", FIRST - 3), &log).await.is_empty());
    let others = ["/users/secret-7", "/secret-path", "/search"].map(request);
    let warnings = send(&app, others, &log).await;
    let [warning] = &warnings[..] else { panic!("{warnings:#?}") };
    for part in ["WARN", "route=\"GET /serach\"", &format!("misuse.rs:{line}:"), "seen=\"/search\""]
    {
        assert!(warning.contains(part), "{part} in {warning}");
    }
    assert!(!warning.contains("secret"), "no path of a client: {warning}");
    assert!(send(&app, same("/search", 2 * FIRST), &log).await.is_empty(), "once");
}

#[tokio::test]
async fn a_route_that_matches_is_not_reported() {
    let log = Log::default();
    let _guard = tracing::subscriber::set_default(log.clone());
    let rule = Rule::new(policy("calls"), by::constant("all")).only(route::is("/users/{id}"));
    let app = routes().layer(layer(rule).exempt(route::is("/files/{*path}")));
    send(&app, [request("/users/7"), request("/files/7")], &log).await;
    assert!(send(&app, same("/search", 2 * FIRST), &log).await.is_empty());
}

#[tokio::test]
async fn exemptions_and_entries_of_costs_are_reported_too() {
    let log = Log::default();
    let _guard = tracing::subscriber::set_default(log.clone());
    let table = [("/search", 2), ("/user/{id}", 3), ("POST /search", 4)];
    let rule = Rule::new(policy("calls"), by::constant("all")).cost(cost::by_route(table, |_| 1));
    let layer = layer(rule)
        .exempt(route::grpc("shop.Orders/Place"))
        .exempt(|parts| parts.method == "OPTIONS");
    let service = tower::ServiceBuilder::new().layer(layer).service(routes());
    let app = Router::new().fallback_service(service);
    let warnings = send(&app, same("/search", FIRST), &log).await;
    assert_eq!(warnings.len(), 3, "{warnings:#?}");
    let is_about = |index: usize, parts: [&str; 2]| {
        let warning: &String = &warnings[index];
        assert!(parts.iter().all(|part| warning.contains(part)), "{parts:?} in {warning}");
        assert!(warning.contains("no route is matched before this layer"), "{warning}");
    };
    is_about(0, ["route=\"shop.Orders/Place\"", "misuse.rs:"]);
    is_about(1, ["route=\"POST /search\"", "misuse.rs:"]);
    is_about(2, ["route=\"/user/{id}\"", "misuse.rs:"]);
    assert!(send(&app, same("/search", 2 * FIRST), &log).await.is_empty(), "once");
}

#[tokio::test]
async fn a_layer_that_is_added_twice_is_reported_once_by_its_policy() {
    let log = Log::default();
    let _guard = tracing::subscriber::set_default(log.clone());
    let limiter = Limiter::in_memory();
    let rule = || Rule::new(policy("per-client"), by::peer_ip());
    let layer = || RateLimitLayer::new(limiter.clone(), rule());
    let one = layer();
    for (inner, outer) in [(one.clone(), one), (layer(), layer())] {
        let inner = routes().layer(inner);
        let app = Router::new().nest("/api", inner).layer(outer);
        let warnings = send(&app, same("/api/search", 10), &log).await;
        let [warning] = &warnings[..] else { panic!("{warnings:#?}") };
        assert!(warning.contains("policy=\"per-client\""), "{warning}");
        assert!(send(&app, same("/api/search", 2 * FIRST), &log).await.is_empty(), "once");
    }
}

/// A second rule, a shadow or a trial under the same policy spends units too.
#[tokio::test]
async fn rules_that_charge_one_key_twice_are_reported_once_by_their_policy() {
    let log = Log::default();
    let _guard = tracing::subscriber::set_default(log.clone());
    let policy = policy("per-client");
    let of = || Rule::new(policy.clone(), by::peer_ip());
    let other = || Rule::new(self::policy("other"), by::peer_ip());
    for twice in [
        layer(of()).and(of()),
        layer(of()).and(of().only(|parts| parts.method == "GET")),
        layer(of()).and(of().shadow()),
        layer(of()).and(other().trial(policy.clone())),
    ] {
        let app = routes().layer(twice);
        let warnings = send(&app, same("/search", 10), &log).await;
        let [warning] = &warnings[..] else { panic!("{warnings:#?}") };
        assert!(warning.contains("policy=\"per-client\""), "{warning}");
        assert!(send(&app, same("/search", 2 * FIRST), &log).await.is_empty(), "once");
    }
    let key = Rule::new(policy.clone(), by::constant("all"));
    let app = routes()
        .layer(layer(of()).and(key).and(of().cost(|_| 0)).and(of().only(route::is("/users/{id}"))));
    let requests = same("/search", FIRST);
    let warnings = send(&app, requests, &log).await;
    assert!(!warnings.iter().any(|warning| warning.contains("per-client")), "{warnings:#?}");
}

/// Layers with other policies, other limiters, other keys or no charge of their own are meant.
#[tokio::test]
async fn stacked_layers_that_differ_are_not_reported() {
    let log = Log::default();
    let _guard = tracing::subscriber::set_default(log.clone());
    let limiter = Limiter::in_memory();
    let of = |name| Rule::new(policy(name), by::peer_ip());
    let other_key = Rule::new(policy("a"), by::constant("all"));
    let app = routes()
        .layer(RateLimitLayer::new(limiter.clone(), of("a")))
        .layer(RateLimitLayer::new(limiter.clone(), of("b")))
        .layer(RateLimitLayer::new(limiter.clone(), other_key))
        .layer(RateLimitLayer::new(limiter.clone(), of("a").cost(|_| 0)))
        .layer(RateLimitLayer::new(limiter.clone(), of("a").only(|_| false)))
        .layer(layer(of("a")));
    assert!(send(&app, same("/search", 2 * FIRST), &log).await.is_empty());
}

/// A header of a proxy is reported once in the process, so all of this is one test.
#[tokio::test]
async fn an_ignored_header_of_a_proxy_is_reported_once() {
    if !alone("misuse::an_ignored_header_of_a_proxy_is_reported_once") {
        return;
    }
    let log = Log::default();
    let _guard = tracing::subscriber::set_default(log.clone());
    let forwarded = |name: &'static str| {
        let mut request = request("/search");
        request.headers_mut().insert(name, "203.0.113.7".parse().unwrap());
        request
    };
    let app = |key: by::ClientIp| {
        routes().layer(layer(Rule::new(policy("per-client"), by::client_ip(key))))
    };
    let behind = app(by::ClientIp::x_forwarded_for(["10.0.0.0/8"]).unwrap());
    let own = app(by::ClientIp::peer().peer_from(|_: &Parts| Some([10, 0, 0, 1].into())));
    let late = app(by::ClientIp::peer());
    for app in [behind, own] {
        assert!(send(&app, [forwarded("x-forwarded-for")], &log).await.is_empty());
    }
    assert!(send(&late, same("/search", FIRST), &log).await.is_empty());
    assert!(send(&late, [forwarded("x-forwarded-for")], &log).await.is_empty(), "not looked for");
    let direct = routes().layer(layer(Rule::new(policy("per-client"), by::peer_ip())));
    assert!(send(&direct, [request("/search"), forwarded("x-other")], &log).await.is_empty());
    let warnings = send(&direct, [forwarded("x-real-ip")], &log).await;
    let [warning] = &warnings[..] else { panic!("{warnings:#?}") };
    assert!(
        warning.contains("header=\"x-real-ip\"") && warning.contains("by::client_ip"),
        "{warning}"
    );
    assert!(!warning.contains("203.0.113.7"), "{warning}");
    for name in ["forwarded", "x-forwarded-for"] {
        let again = app(by::ClientIp::peer());
        assert!(send(&again, [forwarded(name)], &log).await.is_empty(), "once");
    }
}

/// The target `plimsoll::misuse` has these events and no others.
#[tokio::test]
async fn the_filter_of_one_target_silences_all() {
    for (log, expected) in [
        (Log::of(|target| target == "plimsoll::misuse"), 2),
        (Log::of(|target| target == "plimsoll"), 0),
    ] {
        let _guard = tracing::subscriber::set_default(log.clone());
        let rule = Rule::new(policy("per-client"), by::constant("all")).only(route::is("/typo"));
        let twice = layer(Rule::new(policy("twice"), by::constant("all")));
        let app = routes().layer(layer(rule)).layer(twice.clone()).layer(twice);
        assert_eq!(send(&app, same("/search", FIRST), &log).await.len(), expected);
    }
}
