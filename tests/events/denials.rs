//! Events of denials, without any key or address in the clear.
#![cfg(all(feature = "tracing", feature = "metrics"))]

use std::{convert::Infallible, net::SocketAddr, time::Duration};

use axum::extract::ConnectInfo;
use http::{Request, Response};
use plimsoll::{
    Error, Limiter, MemoryStore, OnFailure, Policy, RateLimitLayer, Resilience, Rule, by,
    error::ErrorKind,
    memory::MemoryConfig,
    store::{Answer, Request as StoreRequest, Store},
};
use plimsoll_regions::{Regions, RegionsConfig};
use plimsoll_testing::{algorithms::each_quota, alone, log::Log};
use tower::{Layer, Service, ServiceExt, service_fn};

fn policy(name: &str, quota: &str) -> Policy {
    Policy::new(name, quota).unwrap()
}

#[tokio::test]
async fn events_of_denials() {
    if !alone("denials::events_of_denials") {
        return;
    }
    let log = Log::default();
    let _guard = tracing::subscriber::set_default(log.clone());
    let inner =
        service_fn(|_: Request<()>| async { Ok::<_, Infallible>(Response::new(String::new())) });
    let rule = |name, quota| Rule::new(policy(name, quota), by::header("x-api-key")).cost(|_| 2);
    let mut service = RateLimitLayer::new(Limiter::in_memory(), rule("calls", "5/min"))
        .and(rule("shadow", "2/min").shadow())
        .and(Rule::new(policy("by-peer", "100/min"), by::peer_ip()).shadow())
        .layer(inner);
    let mut ask = async || {
        let request =
            Request::get("/secret-path").header("x-api-key", "very-secret").body(()).unwrap();
        service.ready().await.unwrap().call(request).await.unwrap().status().as_u16()
    };
    assert_eq!([ask().await, ask().await, ask().await], [200, 200, 429]);
    let events = log.take_of_requests();
    assert_eq!(events.len(), 3, "{events:#?}");
    assert!(events[0].contains("into_make_service_with_connect_info"), "once: {}", events[0]);
    assert!(events[0].contains("shadow rules do not count them"), "true of both: {}", events[0]);
    assert!(events[1].contains("policy=\"shadow\"") && events[1].contains("shadow=true"));
    let denial = &events[2];
    for part in
        ["INFO", "policy=\"calls\"", "key=Key(#", "cost=2", "used=4", "limit=5", "retry_after="]
    {
        assert!(denial.contains(part), "{part} in {denial}");
    }
    assert!(!events.iter().any(|event| event.contains("secret")), "{events:#?}");
}

/// At every level, in whatever a request or an operator can bring about.
#[tokio::test]
async fn no_event_has_a_key_or_an_address() {
    if !alone("denials::no_event_has_a_key_or_an_address") {
        return;
    }
    let log = Log::of(|_| true);
    let _guard = tracing::subscriber::set_default(log.clone());
    let inner =
        service_fn(|_: Request<()>| async { Ok::<_, Infallible>(Response::new(String::new())) });
    let mut events = Vec::new();
    for (quota, _) in each_quota("5/min", 4, 5) {
        let unavailable = Limiter::with_resilience(Down, Resilience::default());
        for (limiter, on_failure) in [
            (Limiter::in_memory(), OnFailure::Local),
            (unavailable.clone(), OnFailure::Local),
            (unavailable.clone(), OnFailure::Deny),
            (unavailable, OnFailure::Allow),
        ] {
            let calls = policy("calls", &quota);
            let rule = |name, quota: &str| {
                Rule::new(policy(name, quota), by::header("x-api-key")).on_failure(on_failure)
            };
            let proxies = by::client_ip(by::ClientIp::x_forwarded_for(["192.0.2.0/24"]).unwrap());
            let mut service = RateLimitLayer::new(
                limiter.clone(),
                Rule::new(calls.clone(), by::header("x-api-key"))
                    .on_failure(on_failure)
                    .cost(|_| 2),
            )
            .and(rule("shadow", "2/min").shadow())
            .and(rule("trial", "2/min").trial(policy("tried", "1/min")))
            .and(Rule::new(policy("by-address", "3/min"), proxies).on_failure(on_failure))
            .layer(inner);
            for _ in 0..5 {
                let mut request = Request::get("/very-secret-path?very-secret")
                    .header("x-api-key", "very-secret")
                    .header("x-forwarded-for", "203.0.113.77")
                    .body(())
                    .unwrap();
                request
                    .extensions_mut()
                    .insert(ConnectInfo(SocketAddr::from(([192, 0, 2, 77], 9))));
                let _ = service.ready().await.unwrap().call(request).await.unwrap();
            }
            let _ = limiter.block(calls.charge("very-secret", 1), Duration::from_secs(1)).await;
            let _ = limiter.penalize(calls.charge("very-secret", 1)).await;
            let _ = limiter.check(calls.charge("very-secret", 6)).await;
            events.extend(log.take());
        }
    }
    assert!(events.len() > 50, "{events:#?}");
    for secret in ["secret", "203.0.113", "192.0.2", "2036113", "115, 101, 99, 114"] {
        assert!(!events.iter().any(|event| event.contains(secret)), "{secret}: {events:#?}");
    }
}

/// An event says which store has decided. While the store is down, the used units count against the share of
/// this process, and not against the whole limit.
#[tokio::test]
async fn the_source_of_a_denial() {
    let log = Log::default();
    let _guard = tracing::subscriber::set_default(log.clone());
    let fallback = Resilience::default().instances(4);
    let home = MemoryStore::new(MemoryConfig::default());
    let region = Regions::new(Down, home, RegionsConfig::new(2).share_percent(75)).unwrap();
    for (limiter, units, fields) in [
        (Limiter::in_memory(), 8, ["used=8 limit=8 source=\"local\""; 2]),
        (
            Limiter::with_resilience(Down, fallback),
            2,
            ["used=2 share=2 limit=8", "source=\"fallback\""],
        ),
        (Limiter::new(region), 3, ["used=3 share=3 limit=8", "source=\"fallback\""]),
    ] {
        let calls = policy("calls", "8/min");
        for unit in 0..=units {
            let decision = limiter.check(calls.charge("a", 1)).await.unwrap();
            assert_eq!(decision.is_allowed(), unit < units);
        }
        let denials: Vec<_> =
            log.take().into_iter().filter(|event| event.contains("used=")).collect();
        let [denial] = &denials[..] else { panic!("{denials:#?}") };
        assert!(fields.iter().all(|field| denial.contains(field)), "{denial}");
    }
}

/// An attack writes a line a second and policy, with the count of the other denials.
#[tokio::test(start_paused = true)]
async fn denials_under_a_policy_are_one_event_a_second() {
    let log = Log::default();
    let _guard = tracing::subscriber::set_default(log.clone());
    let limiter = Limiter::in_memory();
    let (calls, other) = (policy("calls", "1/d"), policy("other", "1/d"));
    let denials = async |policy: &Policy, key: &str, count: usize| {
        for _ in 0..count {
            let _ = limiter.check(policy.charge(key, 1)).await.unwrap();
        }
        log.take()
    };
    assert_eq!(denials(&calls, "very-secret", 1).await.len(), 0, "admitted");
    let events = denials(&calls, "very-secret", 1_000).await;
    let [event] = &events[..] else { panic!("{} events", events.len()) };
    assert!(event.contains(" suppressed=0"), "{event}");
    assert!(!event.contains("secret"));
    // Another policy has events of its own.
    assert_eq!(denials(&calls, "eve", 11).await.len(), 0);
    assert_eq!(denials(&other, "very-secret", 11).await.len(), 1);
    tokio::time::advance(Duration::from_millis(1_001)).await;
    let events = denials(&calls, "very-secret", 1_000).await;
    let [event] = &events[..] else { panic!("{} events", events.len()) };
    // One of the 11 checks of the other key was admitted.
    assert!(event.contains(" suppressed=1009"), "{event}");
}

/// A flood of made-up keys that are all denied writes a bounded number of lines.
#[tokio::test(start_paused = true)]
async fn a_flood_of_keys_writes_a_bounded_number_of_events() {
    let log = Log::default();
    let _guard = tracing::subscriber::set_default(log.clone());
    let limiter = Limiter::in_memory();
    let calls = policy("calls", "1/d");
    let flood = async || {
        for key in 0..20_000_u64 {
            let _ = limiter.check(calls.charge(key, 1)).await.unwrap();
        }
        log.take()
    };
    assert_eq!(flood().await.len(), 0);
    assert_eq!(flood().await.len(), 1);
    tokio::time::advance(Duration::from_millis(1_001)).await;
    let events = flood().await;
    let [event] = &events[..] else { panic!("{} events", events.len()) };
    assert!(event.contains(" suppressed=19999"), "{event}");
}

/// The event names the route by its pattern, never by the path that the client has written.
#[cfg(feature = "axum")]
#[tokio::test]
async fn an_event_names_the_route() {
    use axum::{Router, body::Body, routing::get};

    let log = Log::default();
    let _guard = tracing::subscriber::set_default(log.clone());
    let rule = Rule::new(policy("calls", "1/min"), by::constant("all"));
    let layer = RateLimitLayer::new(Limiter::in_memory(), rule);
    let app = Router::new().route("/users/{id}", get(|| async {})).layer(layer);
    for status in [200, 429] {
        let request = Request::get("/users/very-secret").body(Body::empty()).unwrap();
        assert_eq!(app.clone().oneshot(request).await.unwrap().status(), status);
    }
    let events = log.take_of_requests();
    let [denial] = &events[..] else { panic!("{events:#?}") };
    assert!(denial.contains("route=\"/users/{id}\"") && !denial.contains("secret"), "{denial}");
}

#[derive(Debug)]
struct Down;

impl Store for Down {
    fn call(&self, _: StoreRequest<'_>, _: Option<std::time::Instant>) -> Answer {
        Answer::ready(Err(Error::new(ErrorKind::Unavailable, "down")))
    }
}

#[tokio::test(start_paused = true)]
async fn an_outage_is_reported_once() {
    let log = Log::default();
    let _guard = tracing::subscriber::set_default(log.clone());
    let inner =
        service_fn(|_: Request<()>| async { Ok::<_, Infallible>(Response::new(String::new())) });
    let rule = Rule::new(policy("calls", "5/min"), by::header("x-api-key"));
    let mut service =
        RateLimitLayer::new(Limiter::new(Down), rule.on_failure(OnFailure::Deny)).layer(inner);
    for _ in 0..1_000 {
        let request = Request::get("/").header("x-api-key", "very-secret").body(()).unwrap();
        let response = service.ready().await.unwrap().call(request).await.unwrap();
        assert_eq!(response.status().as_u16(), 503);
    }
    let events = log.take_of_requests();
    let warnings: Vec<_> = events.iter().filter(|event| event.contains("WARN")).collect();
    assert_eq!(warnings.len(), 2, "{:#?}", &warnings[..warnings.len().min(9)]);
    assert!(warnings[0].contains("error=down") && warnings[1].contains("breaker=\"open\""));
    assert!(events.len() <= 4, "{events:#?}");
}
