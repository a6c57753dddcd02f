//! Denials, exemptions, shadow rules, failures, and charges that depend on the response.

use std::{
    convert::Infallible,
    sync::{Arc, Mutex},
};

use bytes::Bytes;
use http::{Method, Request, Response, StatusCode};
use http_body::Frame;
use http_body_util::{BodyExt, Empty, Full, StreamBody};
use plimsoll::{Key, Limiter, OnFailure, RateLimitLayer, Rule, key::Identity};
use serde_json::Value;
use tower::{Layer, Service, ServiceExt, service_fn};

use super::{
    Log, PendingStore, RejectingStore, UnavailableStore, get, limiter, policy, rule, text,
};

/// Answers with the status that the path names, and a body of 100 bytes.
fn inner() -> impl Service<
    Request<Empty<Bytes>>,
    Response = Response<Full<Bytes>>,
    Error = std::convert::Infallible,
    Future: Send,
> + Clone {
    service_fn(|request: Request<Empty<Bytes>>| async move {
        let mut response = Response::new(Full::from(vec![b'.'; 100]));
        if let Ok(status) = request.uri().path()[1..].parse() {
            *response.status_mut() = StatusCode::from_u16(status).unwrap();
        }
        Ok(response)
    })
}

macro_rules! ask {
    ($service:expr, $path:expr) => {
        text($service.ready().await.unwrap().call(get($path)).await.unwrap()).await
    };
}

fn problem(body: &str) -> Value {
    serde_json::from_str(body).unwrap()
}

#[tokio::test]
async fn a_denial_is_a_problem_document() {
    let layer =
        RateLimitLayer::new(limiter().0, rule("first", "1/10s")).and(rule("second", "1/min"));
    let mut service = layer.and(rule("third", "9/s")).layer(inner());
    ask!(service, "/");
    let (status, headers, body) = ask!(service, "/");
    assert_eq!(status, 429);
    assert_eq!(headers["content-type"], "application/problem+json");
    assert_eq!(headers["cache-control"], "no-store");
    assert_eq!(headers["retry-after"], "60");
    let problem = problem(&body);
    assert_eq!(problem["type"], "https://iana.org/assignments/http-problem-types#quota-exceeded");
    assert_eq!(problem["status"], 429);
    assert_eq!(problem["violated-policies"], serde_json::json!(["first", "second"]));
    assert!(problem["title"].is_string() && problem["detail"].is_string());
}

#[tokio::test]
async fn a_cost_over_capacity_is_forbidden_and_not_to_be_retried() {
    let layer = RateLimitLayer::new(limiter().0, rule("api", "5/10s").cost(|_| 6));
    let mut service = layer.layer(inner());
    let (status, headers, body) = ask!(service, "/");
    assert_eq!(status, 403);
    assert!(!headers.contains_key("retry-after"));
    let problem = problem(&body);
    assert_eq!(problem["status"], 403);
    assert!(problem["type"].as_str().unwrap().ends_with("#cost-over-capacity"));
    assert_eq!(problem["violated-policies"], serde_json::json!(["api"]));
    assert_eq!(headers["x-ratelimit-remaining"], "5", "nothing is spent");
}

#[tokio::test]
async fn all_rules_or_none_are_charged() {
    let layer =
        RateLimitLayer::new(limiter().0, rule("wide", "9/min")).and(rule("narrow", "1/min"));
    let mut service = layer.layer(inner());
    ask!(service, "/");
    for _ in 0..5 {
        let (status, headers, _) = ask!(service, "/");
        assert_eq!(status, 429);
        assert!(headers["ratelimit"].to_str().unwrap().contains(r#""wide";r=8"#));
    }
}

#[tokio::test]
async fn denials_in_plain_text() {
    let rules = |limiter| RateLimitLayer::new(limiter, rule("api", "1/10s")).plain_text();
    let mut service = rules(limiter().0).layer(inner());
    ask!(service, "/");
    let (status, headers, body) = ask!(service, "/");
    assert_eq!(
        (status, body.as_str()),
        (429, "The quota allows this request again in 10 seconds.\n")
    );
    assert_eq!(headers["content-type"], "text/plain; charset=utf-8");
    assert_eq!(headers["cache-control"], "no-store");
    assert_eq!(headers["retry-after"], "10");

    let dear = rule("dear", "1/10s").cost(|_| 2);
    let mut service = rules(limiter().0).and(dear).layer(inner());
    let (status, headers, body) = ask!(service, "/");
    assert_eq!((status, headers.contains_key("retry-after")), (403, false));
    assert_eq!(
        body,
        "This request costs more than the quota can ever hold: waiting does not help.\n"
    );

    let closed = rule("closed", "1/min").on_failure(OnFailure::Deny);
    let mut service = rules(Limiter::new(UnavailableStore)).and(closed).layer(inner());
    let (status, headers, body) = ask!(service, "/");
    assert_eq!((status, &headers["retry-after"]), (503, &"1".parse().unwrap()));
    assert_eq!(headers["content-type"], "text/plain; charset=utf-8");
    assert_eq!(body, "The request cannot be admitted at the moment.\n");
}

#[tokio::test]
async fn exempt_requests_are_neither_charged_nor_marked() {
    let by_header = Rule::new(policy("api", "1/min"), |parts: &http::request::Parts| {
        match parts.headers.get("x-admin") {
            Some(_) => Identity::Exempt,
            None => Identity::Unknown,
        }
    });
    let layer = RateLimitLayer::new(limiter().0, by_header);
    let mut service = layer.exempt(|parts| parts.uri.path() == "/health").layer(inner());
    for _ in 0..3 {
        let (status, headers, _) = ask!(service, "/health");
        assert_eq!((status, headers.contains_key("ratelimit")), (200, false));
        let admin = Request::get("/").header("x-admin", "1").body(Empty::new()).unwrap();
        let (status, headers, _) =
            text(service.ready().await.unwrap().call(admin).await.unwrap()).await;
        assert_eq!((status, headers.contains_key("ratelimit")), (200, false));
    }
    // All requests without an identity share one key, so they are limited.
    assert_eq!([ask!(service, "/").0, ask!(service, "/").0], [200, 429]);
}

#[tokio::test]
async fn tiers_costs_and_methods() {
    let (free, paid) = (policy("free", "2/min"), policy("paid", "20/min"));
    let tiered = Rule::tiered(
        move |parts| if parts.headers.contains_key("x-paid") { paid.clone() } else { free.clone() },
        |parts| parts.headers.get("x-user").map(Key::from),
    )
    .cost(|parts| if parts.method == Method::GET { 1 } else { 10 });
    let mut service = RateLimitLayer::new(limiter().0, tiered).layer(inner());
    let mut ask = async |method: Method, paid: bool| {
        let mut request = Request::builder().method(method).header("x-user", "alice");
        if paid {
            request = request.header("x-paid", "1");
        }
        let request = request.body(Empty::new()).unwrap();
        service.ready().await.unwrap().call(request).await.unwrap().status().as_u16()
    };
    assert_eq!(ask(Method::GET, false).await, 200);
    assert_eq!(ask(Method::POST, false).await, 403);
    assert_eq!(ask(Method::POST, true).await, 200);
    assert_eq!(ask(Method::POST, true).await, 200);
    assert_eq!(ask(Method::POST, true).await, 429);
}

#[tokio::test]
async fn a_shadow_rule_denies_no_request_and_shows_in_no_header() {
    let log = Log::default();
    let seen = Arc::clone(&log);
    let layer = RateLimitLayer::new(limiter().0, rule("shadowed", "1/min"))
        .shadow()
        .and(rule("real", "3/min"))
        .on_decision(move |decision, _| {
            let verdicts = decision.outcomes().map(|outcome| {
                format!("{} {:?}", outcome.charge().policy().name(), outcome.verdict())
            });
            seen.lock().unwrap().push_back(verdicts.collect::<Vec<_>>().join(", "));
        });
    let mut service = layer.layer(inner());
    for status in [200, 200, 200, 429] {
        let (actual, headers, body) = ask!(service, "/");
        assert_eq!(actual, status);
        assert!(!headers["ratelimit-policy"].to_str().unwrap().contains("shadowed"));
        assert!(!body.contains("shadowed"));
    }
    let log = log.lock().unwrap();
    assert_eq!(log[0], "shadowed Passed, real Passed");
    assert_eq!(log[1], "shadowed Refused, real Passed");
    assert_eq!(log[3], "shadowed Refused, real Refused");
}

#[tokio::test]
async fn on_failure_decides_when_the_store_cannot_answer() {
    let layer = || RateLimitLayer::new(Limiter::new(UnavailableStore), rule("api", "1/min"));
    // By default this process decides by itself.
    let mut local = layer().layer(inner());
    assert_eq!([ask!(local, "/").0, ask!(local, "/").0], [200, 429]);
    let cheap = rule("cheap", "1/min").on_failure(OnFailure::Allow);
    let mut open = RateLimitLayer::new(Limiter::new(UnavailableStore), cheap).layer(inner());
    for _ in 0..3 {
        assert_eq!(ask!(open, "/").0, 200);
    }
    let dear = || rule("dear", "1/min").on_failure(OnFailure::Deny);
    let mut closed = layer().and(dear()).layer(inner());
    let (status, headers, body) = ask!(closed, "/");
    assert_eq!(status, 503);
    assert!(headers["retry-after"].to_str().unwrap().parse::<u64>().unwrap() >= 1);
    let problem = problem(&body);
    assert_eq!(problem["status"], 503);
    assert!(problem["type"].as_str().unwrap().ends_with("#temporary-reduced-capacity"));
    let mut shadow = layer().and(dear().shadow()).layer(inner());
    assert_eq!(ask!(shadow, "/").0, 200, "a shadow denies no request");
    // Two rules of one policy and key are one charge. The stricter one applies on a failure.
    let dear = policy("dear", "1/min");
    let [allow, deny] = [OnFailure::Allow, OnFailure::Deny]
        .map(|on_failure| Rule::new(dear.clone(), |_| "everybody").on_failure(on_failure));
    let mut both =
        RateLimitLayer::new(Limiter::new(UnavailableStore), allow).and(deny).layer(inner());
    assert_eq!(ask!(both, "/").0, 503);
}

/// A quota that the store cannot keep is a mistake of the program. The request is rejected, also with
/// [`OnFailure::Allow`].
#[tokio::test]
async fn a_check_that_the_store_rejects_is_rejected() {
    let rule = |name| rule(name, "1/min").on_failure(OnFailure::Allow);
    let mut service = RateLimitLayer::new(Limiter::new(RejectingStore), rule("p")).layer(inner());
    assert_eq!(ask!(service, "/").0, 503);
    let mut shadow =
        RateLimitLayer::new(Limiter::new(RejectingStore), rule("p").shadow()).layer(inner());
    assert_eq!(ask!(shadow, "/").0, 200);
}

#[tokio::test]
async fn refund_if_refunds_by_the_head_of_the_response() {
    for later in [false, true] {
        let store = plimsoll::MemoryStore::new(Default::default());
        let limiter = if later { Limiter::new(PendingStore(store)) } else { Limiter::new(store) };
        let failures = rule("failures", "3/min").refund_if(|head| head.status.is_success());
        let mut service = RateLimitLayer::new(limiter, failures).layer(inner());
        for _ in 0..9 {
            let (status, headers, _) = ask!(service, "/200");
            assert_eq!((status, &headers["x-ratelimit-remaining"]), (200, &"3".parse().unwrap()));
        }
        for remaining in ["2", "1", "0"] {
            let (status, headers, _) = ask!(service, "/401");
            assert_eq!(
                (status, headers["x-ratelimit-remaining"].to_str().unwrap()),
                (401, remaining)
            );
        }
        assert_eq!(ask!(service, "/200").0, 429);
    }
}

#[tokio::test]
async fn the_length_of_the_body_is_settled_when_it_ends_or_is_dropped() {
    let (limiter, _) = limiter();
    let bytes = policy("bytes", "1000/min");
    let by_body =
        Rule::new(bytes.clone(), |_| "everybody").cost(|_| 10).cost_of_body(|bytes| bytes);
    let mut service = RateLimitLayer::new(limiter.clone(), by_body).layer(inner());
    let remaining = async || {
        let peek = limiter.peek(bytes.charge("everybody", 0)).await.unwrap();
        peek.outcomes().next().expect("an outcome").standing().remaining
    };
    ask!(service, "/");
    assert_eq!(remaining().await, 900, "100 bytes were sent");
    let response = service.ready().await.unwrap().call(get("/")).await.unwrap();
    assert_eq!(remaining().await, 890, "the estimate is held");
    drop(response);
    assert_eq!(remaining().await, 900, "nothing was sent");
}

#[test]
fn debug_shows_no_keys() {
    let seen = Arc::new(Mutex::new(0));
    let layer = RateLimitLayer::new(limiter().0, rule("api", "1/min")).on_decision(move |_, _| {
        *seen.lock().unwrap() += 1;
    });
    assert!(format!("{layer:?}").contains("api"));
    assert!(!format!("{:?}", Key::from("secret-token")).contains("secret"));
}

/// Each frame of a body is counted, and with a store that answers later a task settles.
#[tokio::test]
async fn every_frame_is_counted_and_a_remote_store_settles() {
    let limiter = Limiter::new(PendingStore(plimsoll::MemoryStore::new(Default::default())));
    let bytes = policy("bytes", "1000/min");
    let by_body =
        Rule::new(bytes.clone(), |_| "everybody").cost(|_| 10).cost_of_body(|bytes| bytes);
    let frames = || {
        let frame = |length| Ok::<_, Infallible>(Frame::data(Bytes::from(vec![0; length])));
        StreamBody::new(futures_util::stream::iter([50, 70].map(frame)))
    };
    let inner = service_fn(move |_: Request<Empty<Bytes>>| async move {
        Ok::<_, Infallible>(Response::new(frames()))
    });
    let mut service = RateLimitLayer::new(limiter.clone(), by_body).layer(inner);
    let response = service.ready().await.unwrap().call(get("/")).await.unwrap();
    assert_eq!(response.into_body().collect().await.unwrap().to_bytes().len(), 120);
    for _ in 0..20 {
        tokio::task::yield_now().await;
    }
    let peek = limiter.peek(bytes.charge("everybody", 0)).await.unwrap();
    assert_eq!(peek.outcomes().next().unwrap().standing().remaining, 880);
}
