//! Charging by outcome, over real HTTP: exact under concurrency, settled when the body ends.
#![cfg(feature = "axum")]

use std::{
    convert::Infallible,
    panic,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use axum::{Router, body::Body, extract::Request, response::Response, routing::get};
use bytes::Bytes;
use futures_util::{StreamExt, stream};
use http::StatusCode;
use http_body_util::BodyExt;
use plimsoll::{
    Error, Limiter, MemoryStore, OnFailure, Policy, RateLimitLayer, Resilience, Rule, by,
    error::ErrorKind,
    key::Identity,
    layer::{Decisions, Tally},
    memory::MemoryConfig,
    store::{Answer, Request as StoreRequest, Store},
};
use plimsoll_testing::web::{http1, serve};
use tower::{Layer, Service, ServiceExt, service_fn};

fn policy(name: &str, quota: &str) -> Policy {
    Policy::new(name, quota).unwrap()
}

async fn left(limiter: &Limiter, policy: &Policy) -> u64 {
    let decision = limiter.peek(policy.charge("all", 0)).await.unwrap();
    decision.binding().unwrap().standing().remaining
}

/// Settling happens on the server's side of the connection.
async fn settles_at(limiter: &Limiter, policy: &Policy, expected: u64) {
    for _ in 0..4_000 {
        if left(limiter, policy).await == expected {
            return;
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    assert_eq!(left(limiter, policy).await, expected);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn failed_logins_are_limited_under_concurrency() {
    for _ in 0..10 {
        let guesses = Arc::new(AtomicUsize::new(0));
        let counted = Arc::clone(&guesses);
        let handler = move || async move {
            counted.fetch_add(1, Ordering::SeqCst);
            tokio::time::sleep(Duration::from_millis(10)).await;
            StatusCode::UNAUTHORIZED
        };
        let rule = Rule::new(policy("failed", "3/min"), by::header("x-account"))
            .refund_if(|response| response.status.is_success());
        let layer = RateLimitLayer::new(Limiter::in_memory(), rule);
        let address = serve(Router::new().route("/", get(handler)).layer(layer)).await;
        let attempts = (0..40).map(|_| async {
            http1(address).await.get_with("/", &[("x-account", "alice")]).await.status
        });
        let statuses = futures_util::future::join_all(attempts).await;
        assert_eq!(guesses.load(Ordering::SeqCst), 3);
        assert_eq!(statuses.iter().filter(|status| **status == 401).count(), 3);
        assert_eq!(statuses.iter().filter(|status| **status == 429).count(), 37);
    }
}

#[tokio::test]
async fn success_is_refunded_before_the_response_is_sent() {
    let rule = Rule::new(policy("failed", "3/min"), by::constant("all"))
        .refund_if(|response| response.status.is_success());
    let layer = RateLimitLayer::new(Limiter::in_memory(), rule);
    let address = serve(Router::new().route("/", get(|| async { "ok" })).layer(layer)).await;
    let mut client = http1(address).await;
    for _ in 0..20 {
        let reply = client.get("/").await;
        assert_eq!(reply.status, 200);
        assert_eq!(reply.headers["x-ratelimit-remaining"], "3");
    }
}

#[tokio::test]
async fn bytes_are_settled_when_the_body_ends() {
    let (limiter, bytes) = (Limiter::in_memory(), policy("bytes", "1000/h"));
    let rule =
        Rule::new(bytes.clone(), by::constant("all")).cost(|_| 300).cost_of_body(|sent| sent);
    let layer = RateLimitLayer::new(limiter.clone(), rule);
    let app = Router::new().route("/", get(|| async { "x".repeat(120) })).layer(layer);
    let address = serve(app).await;
    assert_eq!(http1(address).await.get("/").await.status, 200);
    settles_at(&limiter, &bytes, 880).await;
}

/// An enforced rule would have stopped the requests that the full shadow refuses, so their cost is
/// not charged.
#[tokio::test]
async fn a_refused_shadow_is_not_settled() {
    let (limiter, units) = (Limiter::in_memory(), policy("units", "100/min"));
    let rule = Rule::new(units.clone(), by::constant("all")).shadow().settle_tally();
    let layer = RateLimitLayer::new(limiter.clone(), rule);
    let handler = || async {
        let tally = Tally::new();
        tally.add(60);
        let mut response = Response::new(Body::empty());
        response.extensions_mut().insert(tally);
        response
    };
    let app = Router::new().route("/", get(handler)).layer(layer);
    for _ in 0..5 {
        let request = Request::get("/").body(Body::empty()).unwrap();
        app.clone().oneshot(request).await.unwrap().into_body().collect().await.unwrap();
    }
    units.set_quota("1000/min".parse().unwrap());
    assert_eq!(left(&limiter, &units).await, 880, "two requests passed");
}

/// A store in memory that counts its calls.
#[derive(Debug)]
struct Counted(MemoryStore, Arc<AtomicUsize>);

impl Store for Counted {
    fn call(&self, request: StoreRequest<'_>, deadline: Option<std::time::Instant>) -> Answer {
        self.1.fetch_add(1, Ordering::SeqCst);
        self.0.call(request, deadline)
    }
}

/// A refund or a settlement of nothing costs no round trip before the response.
#[tokio::test]
async fn a_refused_shadow_sends_no_request_after_its_check() {
    let calls = Arc::new(AtomicUsize::new(0));
    let store = Counted(MemoryStore::new(MemoryConfig::default()), Arc::clone(&calls));
    let limiter = Limiter::with_resilience(store, Resilience::none());
    let full = policy("full", "1/min");
    assert!(limiter.check(full.charge("all", 1)).await.unwrap().is_allowed());
    let rule = || Rule::new(full.clone(), by::constant("all")).shadow();
    for rule in [rule().refund_if(|_| true), rule().cost_of_body(|_| 10)] {
        let layer = RateLimitLayer::new(limiter.clone(), rule);
        let app = Router::new().route("/", get(|| async { "ok" })).layer(layer);
        let before = calls.load(Ordering::SeqCst);
        let request = Request::get("/").body(Body::empty()).unwrap();
        app.oneshot(request).await.unwrap().into_body().collect().await.unwrap();
        assert_eq!(calls.load(Ordering::SeqCst) - before, 1, "the check alone");
    }
}

/// HEAD makes the same work as GET, so it costs the same.
#[tokio::test]
async fn head_costs_as_much_as_get() {
    let (limiter, bytes) = (Limiter::in_memory(), policy("bytes", "1000/h"));
    let rule = Rule::new(bytes.clone(), by::constant("all")).cost_of_body(|sent| sent.div_ceil(12));
    let layer = RateLimitLayer::new(limiter.clone(), rule);
    let stated = || async { ([("content-length", "240")], Body::empty()) };
    let stream = || async {
        Body::from_stream(stream::iter([Ok::<_, Infallible>(Bytes::from_static(&[0; 120]))]))
    };
    let app = Router::new()
        .route("/", get(|| async { "x".repeat(120) }))
        .route("/stated", axum::routing::head(stated))
        .route("/stream", get(stream))
        .layer(layer.clone());
    let outside = layer.layer(Router::new().route("/stream", get(stream)));
    let address = serve(app).await;
    assert_eq!(http1(address).await.get("/").await.body.len(), 120);
    settles_at(&limiter, &bytes, 990).await;
    let head = async |path: &str| {
        let io =
            hyper_util::rt::TokioIo::new(tokio::net::TcpStream::connect(address).await.unwrap());
        let (mut sender, connection) = hyper::client::conn::http1::handshake(io).await.unwrap();
        tokio::spawn(connection);
        let request = http::Request::head(path).header("host", "x").body(Body::empty()).unwrap();
        let response = sender.send_request(request).await.unwrap();
        assert_eq!(response.status(), 200);
        assert!(response.into_body().collect().await.unwrap().to_bytes().is_empty());
    };
    head("/").await;
    settles_at(&limiter, &bytes, 980).await;
    head("/stated").await;
    settles_at(&limiter, &bytes, 960).await;
    head("/stream").await;
    settles_at(&limiter, &bytes, 959).await;

    // Outside of the router, which has removed the body.
    let request = http::Request::head("/stream").body(Body::empty()).unwrap();
    let response = outside.oneshot(request).await.unwrap();
    assert!(response.into_body().collect().await.unwrap().to_bytes().is_empty());
    settles_at(&limiter, &bytes, 958).await;
}

/// Sends `n` units, one at a time, and tallies each when it is sent.
async fn tallying(request: Request) -> Response {
    let n: u64 = request.uri().query().unwrap().parse().unwrap();
    let tally = Tally::new();
    let count = tally.clone();
    let body = stream::iter(0..n).then(move |_| {
        let count = count.clone();
        async move {
            tokio::time::sleep(Duration::from_millis(5)).await;
            count.add(1);
            Ok::<_, Infallible>(Bytes::from_static(b"unit "))
        }
    });
    let mut response = Response::new(Body::from_stream(body));
    response.extensions_mut().insert(tally);
    response
}

#[tokio::test]
async fn tallies_are_settled_when_the_body_ends_or_the_client_disconnects() {
    let (limiter, units) = (Limiter::in_memory(), policy("units", "1000/h"));
    let rule = Rule::new(units.clone(), by::constant("all")).cost(|_| 100).settle_tally();
    let layer = RateLimitLayer::new(limiter.clone(), rule);
    let app = Router::new()
        .route("/", get(tallying))
        .route("/plain", get(|| async { "no tally" }))
        .layer(layer);
    let address = serve(app).await;
    assert_eq!(http1(address).await.get("/?30").await.body.len(), 150);
    settles_at(&limiter, &units, 970).await;
    assert_eq!(http1(address).await.get("/?130").await.body.len(), 650);
    settles_at(&limiter, &units, 840).await;

    let mut client = http1(address).await;
    let mut response = client.send("/?100000", &[]).await;
    for _ in 0..10 {
        response.body_mut().frame().await.unwrap().unwrap();
    }
    assert_eq!(left(&limiter, &units).await, 740, "the estimate is held");
    drop((response, client));
    for _ in 0..200 {
        if left(&limiter, &units).await != 740 {
            break;
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    let after = left(&limiter, &units).await;
    assert!((790..=830).contains(&after), "{after}");
    assert_eq!(http1(address).await.get("/plain").await.status, 200);
    assert_eq!(left(&limiter, &units).await, after - 100, "without a tally the estimate stays");
}

#[tokio::test]
async fn a_panic_fails_its_request_and_the_server_lives() {
    let boom = |path: &'static str| {
        move |parts: &http::request::Parts| {
            assert!(parts.uri.path() != path, "an application's mistake");
            1
        }
    };
    let limiter = Limiter::in_memory();
    let cost = Rule::new(policy("cost", "100/min"), by::constant("all")).cost(boom("/cost"));
    let identity = boom("/identity");
    let who = Rule::new(policy("who", "100/min"), move |parts| format!("{}", identity(parts)));
    let refund = Rule::new(policy("refund", "100/min"), by::constant("all"))
        .refund_if(|response| panic!("{} is a mistake", response.status))
        .only(|parts| parts.uri.path() == "/refund");
    let length = Rule::new(policy("length", "100/min"), by::constant("all"))
        .cost_of_body(|_| panic!("a mistake"))
        .only(|parts| parts.uri.path() == "/length");
    let handler = async |request: Request| match request.uri().path() {
        "/handler" => panic!("a mistake"),
        _ => "ok",
    };
    let layer = RateLimitLayer::new(limiter, cost).and(who).and(refund).and(length);
    let app = Router::new().fallback(handler).layer(layer);
    let address = serve(app).await;
    panic::set_hook(Box::new(|_| {}));
    for path in ["/cost", "/identity", "/refund", "/handler"] {
        assert!(http1(address).await.try_get(path).await.is_err(), "{path}");
        assert_eq!(http1(address).await.get("/").await.status, 200, "after {path}");
    }
    // The response has been sent: the estimate stays.
    assert_eq!(http1(address).await.get("/length").await.status, 200);
    assert_eq!(http1(address).await.get("/").await.status, 200);
    let _ = panic::take_hook();
}

#[tokio::test]
async fn strange_requests() {
    let cost = |parts: &http::request::Parts| match parts.uri.path() {
        "/zero" => 0,
        "/huge" => u64::MAX,
        _ => 1,
    };
    let key = by::header("x-api-key");
    let rule = Rule::new(policy("calls", "2/min"), key).cost(cost);
    let inner = service_fn(|_: http::Request<()>| async {
        Ok::<_, Infallible>(http::Response::new(Body::empty()))
    });
    let mut service = RateLimitLayer::new(Limiter::in_memory(), rule).layer(inner);
    let mut ask = async |path: &str, key: Option<&[u8]>| {
        let mut request = http::Request::get(path);
        if let Some(key) = key {
            request = request.header("x-api-key", http::HeaderValue::from_bytes(key).unwrap());
        }
        let request = request.body(()).unwrap();
        service.ready().await.unwrap().call(request).await.unwrap().status().as_u16()
    };
    for key in [Some(&b"\xff\xfe\x80"[..]), Some(&vec![b'k'; 64 << 10]), None] {
        for _ in 0..3 {
            assert_eq!(ask("/zero", key).await, 200);
        }
        assert_eq!(ask("/huge", key).await, 403);
        assert_eq!(
            [ask("/", key).await, ask("/", key).await, ask("/", key).await],
            [200, 200, 429]
        );
        assert_eq!(ask("/zero", key).await, 200, "a cost of 0 passes an empty quota");
    }
}

#[tokio::test]
async fn handlers_and_outer_layers_see_the_decision() {
    let limiter = Limiter::in_memory();
    let layer = |name: &str, quota: &str| {
        let rule = Rule::new(policy(name, quota), by::constant("all"));
        RateLimitLayer::new(limiter.clone(), rule).visible()
    };
    let handler = async |decided: Decisions| {
        let Some(binding) = decided.binding() else { return "none".to_owned() };
        format!(
            "{} {} {}",
            binding.charge().policy().name(),
            binding.standing().remaining,
            decided.decisions().count()
        )
    };
    let app = Router::new()
        .route("/", get(handler))
        .layer(layer("inner", "10/min"))
        .layer(layer("outer", "2/min"))
        .route("/bare", get(handler));
    let ask = async |path: &str| {
        let request = Request::get(path).body(Body::empty()).unwrap();
        app.clone().oneshot(request).await.unwrap()
    };
    let response = ask("/").await;
    assert_eq!(response.extensions().get::<Decisions>().unwrap().decisions().count(), 2);
    let body = response.into_body().collect().await.unwrap().to_bytes();
    assert_eq!(body, "outer 1 2");
    ask("/").await;
    let denied = ask("/").await;
    assert_eq!(denied.status(), 429);
    let shown = denied.extensions().get::<Decisions>().unwrap().decisions().next().unwrap();
    assert!(!shown.is_allowed());
    let bare = ask("/bare").await.into_body().collect().await.unwrap().to_bytes();
    assert_eq!(bare, "none", "no layer in front of it");
}

/// A customer has a quota of its own, which decides instead of the quota of the policy.
#[tokio::test]
async fn an_outcome_has_the_quota_that_decided() {
    let api = policy("api", "4/min");
    let rule = Rule::new(api.clone(), by::constant("customer"))
        .quota(|_| "100/min".parse::<plimsoll::Quota>().ok());
    let layer = RateLimitLayer::new(Limiter::in_memory(), rule).visible();
    let handler = async move |decided: Decisions| {
        api.set_quota("7/min".parse().unwrap());
        let outcome = decided.binding().unwrap();
        let (quota, limit) = (outcome.charge().quota(), outcome.standing().limit);
        format!("{quota} {limit}, policy {}", outcome.charge().policy().quota())
    };
    let app = Router::new().route("/", get(handler)).layer(layer);
    let request = Request::get("/").body(Body::empty()).unwrap();
    let body = app.oneshot(request).await.unwrap().into_body().collect().await.unwrap();
    assert_eq!(body.to_bytes(), "100/min 100, policy 7/min");
}

/// The policy that has refused a request binds, and not an outer one that has no units left.
#[tokio::test]
async fn the_policy_that_refuses_binds() {
    let limiter = Limiter::in_memory();
    let layer = |name: &str, quota: &str| {
        let rule = Rule::new(policy(name, quota), by::constant("all")).cost(|_| 2);
        RateLimitLayer::new(limiter.clone(), rule).visible()
    };
    let app = Router::new()
        .route("/", get(|| async {}))
        .layer(layer("inner", "3/min"))
        .layer(layer("outer", "4/min"));
    let mut bindings = Vec::new();
    for _ in 0..2 {
        let request = Request::get("/").body(Body::empty()).unwrap();
        let response = app.clone().oneshot(request).await.unwrap();
        let decided = response.extensions().get::<Decisions>().unwrap();
        let binding = decided.binding().unwrap();
        bindings.push((
            binding.charge().policy().name().to_owned(),
            binding.name(),
            decided.remaining(),
        ));
    }
    assert_eq!(
        bindings,
        [("inner".to_owned(), "allowed", Some(1)), ("inner".to_owned(), "denied", Some(0)),]
    );
}

/// An exempt request, or one that the store's failure lets through, is no mistake of the server.
#[tokio::test]
async fn handlers_see_that_nothing_was_decided() {
    #[derive(Debug)]
    struct Down;
    impl Store for Down {
        fn call(&self, _: StoreRequest<'_>, _: Option<std::time::Instant>) -> Answer {
            Answer::ready(Err(Error::new(ErrorKind::Unavailable, "down")))
        }
    }
    let rule = || Rule::new(policy("calls", "2/min"), by::constant("all"));
    let exempt_key = Rule::new(policy("calls", "2/min"), |_| Identity::Exempt);
    let handler = async |decided: Decisions| {
        assert!(decided.decisions().next().is_none() && decided.binding().is_none());
        format!("{:?} {}", decided.remaining(), decided.decisions().count())
    };
    for layer in [
        RateLimitLayer::new(Limiter::in_memory(), rule()).exempt(|_| true),
        RateLimitLayer::new(Limiter::in_memory(), exempt_key),
        RateLimitLayer::new(
            Limiter::with_resilience(Down, Resilience::none()),
            rule().on_failure(OnFailure::Allow),
        ),
    ] {
        let app = Router::new().route("/", get(handler)).layer(layer.visible());
        let request = Request::get("/").body(Body::empty()).unwrap();
        let response = app.oneshot(request).await.unwrap();
        assert_eq!(response.status(), 200);
        assert_eq!(response.into_body().collect().await.unwrap().to_bytes(), "None 0");
    }
    // The decision of an outer layer still shows.
    let outer = RateLimitLayer::new(Limiter::in_memory(), rule()).visible();
    let inner = RateLimitLayer::new(Limiter::in_memory(), rule()).exempt(|_| true).visible();
    let handler = async |decided: Decisions| decided.remaining().unwrap().to_string();
    let app = Router::new().route("/", get(handler)).layer(inner).layer(outer);
    let response = app.oneshot(Request::get("/").body(Body::empty()).unwrap()).await.unwrap();
    assert_eq!(response.into_body().collect().await.unwrap().to_bytes(), "1");
}

/// A refund belongs to its own rule, and outer layers see the standing after it.
#[tokio::test]
async fn a_refund_is_of_its_own_rule_and_shows() {
    let limiter = Limiter::in_memory();
    let (calls, failed) = (policy("calls", "9/min"), policy("failed", "3/min"));
    let layer = RateLimitLayer::new(limiter.clone(), Rule::new(calls.clone(), by::constant("all")))
        .and(
            Rule::new(failed.clone(), by::constant("all"))
                .cost(|_| 2)
                .refund_if(|response| response.status.is_success()),
        )
        .visible();
    let app = Router::new().route("/", get(|| async { "ok" })).layer(layer);
    let response = app.oneshot(Request::get("/").body(Body::empty()).unwrap()).await.unwrap();
    assert_eq!(response.headers()["x-ratelimit-remaining"], "3");
    assert_eq!(response.extensions().get::<Decisions>().unwrap().remaining(), Some(3));
    assert_eq!(left(&limiter, &calls).await, 8, "the other rule's charge stays");
    assert_eq!(left(&limiter, &failed).await, 3);
}
