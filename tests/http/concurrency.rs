//! Concurrency limits over real HTTP: a unit is in flight until the body of the response has ended.
#![cfg(feature = "axum")]

use std::{convert::Infallible, future::poll_fn, pin::pin, sync::Arc, time::Duration};

use axum::{Router, body::Body, response::Response, routing::get};
use bytes::Bytes;
use futures_util::{poll, stream};
use http::{Request, StatusCode};
use http_body_util::BodyExt;
use plimsoll::{
    Limiter, MemoryStore, Policy, RateLimitLayer, Resilience, Rule, by,
    clock::TokioClock,
    limiter::Reserved,
    memory::MemoryConfig,
    store::{Answer, Request as StoreRequest, Store},
};
use plimsoll_pace::PaceLayer;
use plimsoll_testing::web::{http1, serve};
use tokio::{
    sync::{Semaphore, mpsc},
    time::{Instant, sleep},
};
use tower::{Layer, Service, ServiceExt, service_fn};

/// A store that takes 5 ms, as a server does.
#[derive(Debug)]
struct Remote(MemoryStore);

impl Remote {
    fn new() -> Self {
        Self(MemoryStore::new(MemoryConfig::default().clock(TokioClock::new())))
    }
}

impl Store for Remote {
    fn call(&self, request: StoreRequest<'_>, deadline: Option<std::time::Instant>) -> Answer {
        let answer = self.0.call(request, deadline);
        Answer::pending(async move {
            sleep(Duration::from_millis(5)).await;
            answer.await
        })
    }
}

fn limiters() -> [Limiter; 2] {
    [Limiter::in_memory(), Limiter::with_resilience(Remote::new(), Resilience::none())]
}

fn jobs(quota: &str) -> Policy {
    Policy::new("jobs", quota).expect("valid")
}

fn layer(limiter: &Limiter, policy: &Policy) -> RateLimitLayer {
    RateLimitLayer::new(limiter.clone(), Rule::new(policy.clone(), by::constant("all")))
}

async fn free(limiter: &Limiter, policy: &Policy) -> u64 {
    let decision = limiter.peek(policy.charge("all", 0)).await.expect("an answer");
    decision.binding().expect("one charge").standing().remaining
}

async fn becomes_free(limiter: &Limiter, policy: &Policy, expected: u64) {
    let start = Instant::now();
    while free(limiter, policy).await != expected {
        assert!(start.elapsed() < Duration::from_secs(20), "not free: {expected}");
        sleep(Duration::from_millis(2)).await;
    }
}

#[tokio::test]
async fn a_unit_is_held_until_the_body_has_ended() {
    for limiter in limiters() {
        let policy = jobs("2 concurrent expires(30s)");
        let (sender, receiver) = mpsc::channel::<Bytes>(1);
        let receiver = Arc::new(tokio::sync::Mutex::new(receiver));
        let handler = move || {
            let receiver = Arc::clone(&receiver);
            async move {
                let frames = stream::unfold(receiver, |receiver| async move {
                    let frame = receiver.lock().await.recv().await?;
                    Some((Ok::<_, Infallible>(frame), receiver))
                });
                Response::new(Body::from_stream(frames))
            }
        };
        let address =
            serve(Router::new().route("/", get(handler)).layer(layer(&limiter, &policy))).await;
        let reply = tokio::spawn(async move { http1(address).await.get("/").await });
        becomes_free(&limiter, &policy, 1).await;
        for _ in 0..3 {
            sender.send(Bytes::from_static(b"part")).await.expect("the body is read");
            assert_eq!(free(&limiter, &policy).await, 1);
        }
        drop(sender);
        assert_eq!(reply.await.expect("no panic").status, 200);
        becomes_free(&limiter, &policy, 2).await;
    }
}

#[tokio::test]
async fn the_request_after_the_last_unit_is_denied() {
    for limiter in limiters() {
        let policy = jobs("2 concurrent expires(30s)");
        let gate = Arc::new(Semaphore::new(0));
        let gated = Arc::clone(&gate);
        let handler = move || async move {
            gated.acquire().await.expect("open").forget();
            "done"
        };
        let address =
            serve(Router::new().route("/", get(handler)).layer(layer(&limiter, &policy))).await;
        let replies: Vec<_> = (0..2)
            .map(|_| tokio::spawn(async move { http1(address).await.get("/").await.status }))
            .collect();
        becomes_free(&limiter, &policy, 0).await;
        let denied = http1(address).await.get("/").await;
        assert_eq!(denied.status, 429);
        let retry_after: u64 = denied.headers["retry-after"].to_str().unwrap().parse().unwrap();
        assert!((1..=2).contains(&retry_after), "{retry_after}");
        assert_eq!(denied.headers["ratelimit-policy"], "\"jobs\";q=2;qu=\"concurrent-requests\"");
        assert_eq!(denied.headers["ratelimit"], "\"jobs\";r=0");
        gate.add_permits(2);
        for reply in replies {
            assert_eq!(reply.await.expect("no panic"), 200);
        }
        becomes_free(&limiter, &policy, 2).await;
    }
}

#[tokio::test]
async fn a_panic_and_a_dropped_request_release_their_units() {
    for limiter in limiters() {
        let policy = jobs("2 concurrent expires(30s)");
        let service =
            layer(&limiter, &policy).layer(service_fn(
                async |request: Request<&str>| match *request.body() {
                    "panic" => panic!("a handler"),
                    "never" => std::future::pending().await,
                    _ => Ok::<_, Infallible>(http::Response::new(Body::from("three parts"))),
                },
            ));
        let call = |body| service.clone().oneshot(Request::new(body));
        let panicked = tokio::spawn(call("panic")).await;
        assert!(panicked.is_err_and(|error| error.is_panic()));
        becomes_free(&limiter, &policy, 2).await;
        {
            let mut call = pin!(call("never"));
            assert!(poll!(&mut call).is_pending());
            while free(&limiter, &policy).await == 2 {
                assert!(poll!(&mut call).is_pending());
            }
        }
        becomes_free(&limiter, &policy, 2).await;
        // A body that is dropped half-way.
        let mut body = pin!(call("body").await.expect("a response").into_body());
        assert_eq!(free(&limiter, &policy).await, 1);
        assert!(poll_fn(|cx| http_body::Body::poll_frame(body.as_mut(), cx)).await.is_some());
        assert_eq!(free(&limiter, &policy).await, 1);
        let whole = call("body").await.expect("a response").into_body();
        assert_eq!(free(&limiter, &policy).await, 0);
        assert_eq!(whole.collect().await.expect("a body").to_bytes(), "three parts");
        becomes_free(&limiter, &policy, 1).await;
    }
}

/// The client hangs up while the check is on its way.
#[tokio::test]
async fn an_abandoned_check_releases_its_unit() {
    let limiter = Limiter::with_resilience(Remote::new(), Resilience::none());
    let policy = jobs("2 concurrent expires(30s)");
    let service = layer(&limiter, &policy).layer(service_fn(async |_: Request<()>| {
        Ok::<_, Infallible>(http::Response::new(Body::empty()))
    }));
    {
        let mut call = pin!(service.clone().oneshot(Request::new(())));
        assert!(poll!(&mut call).is_pending());
        assert_eq!(free(&limiter, &policy).await, 1);
    }
    becomes_free(&limiter, &policy, 2).await;
    {
        let mut check = pin!(limiter.check(policy.charge("all", 1)));
        assert!(poll!(&mut check).is_pending());
        let mut ready = pin!(limiter.until_ready(policy.charge("all", 1), Duration::from_secs(1)));
        assert!(poll!(&mut ready).is_pending());
    }
    becomes_free(&limiter, &policy, 2).await;
}

#[tokio::test(start_paused = true)]
async fn a_call_to_another_service_is_in_flight_until_its_body_has_ended() {
    for limiter in limiters() {
        let policy = jobs("1 concurrent expires(30s)");
        let rule = Rule::new(policy.clone(), by::constant("all"));
        let client = PaceLayer::new(limiter.clone(), rule).wait(Duration::from_secs(10)).layer(
            service_fn(async |_: Request<()>| {
                Ok::<_, Infallible>(http::Response::new(Body::from("answer")))
            }),
        );
        let first = client.clone().oneshot(Request::new(())).await.expect("an answer");
        let second = tokio::spawn(client.clone().oneshot(Request::new(())));
        sleep(Duration::from_millis(100)).await;
        assert!(!second.is_finished());
        drop(first);
        let start = Instant::now();
        let second = second.await.expect("no panic").expect("an answer");
        assert!(start.elapsed() < Duration::from_secs(1), "{:?}", start.elapsed());
        assert_eq!(second.into_body().collect().await.expect("a body").to_bytes(), "answer");
        becomes_free(&limiter, &policy, 1).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_long_request_renews_its_unit_and_a_reservation_releases_it() {
    let clock = TokioClock::new();
    let embedded = MemoryStore::new(MemoryConfig::default().clock(clock));
    for limiter in
        [Limiter::new(embedded), Limiter::with_resilience(Remote::new(), Resilience::none())]
    {
        let policy = jobs("2 concurrent expires(2s)");
        let reserve = async || match limiter.reserve(policy.charge("all", 1)).await {
            Ok(Reserved::Held(held)) => held,
            other => panic!("{other:?}"),
        };
        let (long, other) = (reserve().await, reserve().await);
        for _ in 0..100 {
            sleep(Duration::from_millis(100)).await;
            assert_eq!(free(&limiter, &policy).await, 0);
        }
        drop(other);
        sleep(Duration::from_millis(50)).await;
        assert_eq!(free(&limiter, &policy).await, 1);
        assert_eq!(long.refund().await.expect("an answer"), 1);
        assert_eq!(free(&limiter, &policy).await, 2);
        // A unit whose permit is lost is free after the expiry.
        let Ok(decision) = limiter.check(policy.charge("all", 1)).await else { panic!() };
        assert!(decision.is_allowed());
        sleep(Duration::from_millis(1_900)).await;
        assert_eq!(free(&limiter, &policy).await, 1);
        sleep(Duration::from_millis(200)).await;
        assert_eq!(free(&limiter, &policy).await, 2);
    }
}

/// The refund of a rule does not release the unit of work that goes on.
#[tokio::test]
async fn an_outcome_does_not_release_a_unit() {
    for limiter in limiters() {
        let policy = jobs("2 concurrent expires(30s)");
        let rate = Policy::new("rate", "10/h").expect("valid");
        let layer = RateLimitLayer::new(
            limiter.clone(),
            Rule::new(policy.clone(), by::constant("all")).refund_if(|_| true),
        )
        .and(Rule::new(rate.clone(), by::constant("all")).refund_if(|_| true));
        let mut service = layer.layer(service_fn(async |_: Request<()>| {
            Ok::<_, Infallible>(http::Response::new(Body::from("answer")))
        }));
        let response = service.ready().await.unwrap().call(Request::new(())).await.unwrap();
        assert_eq!(response.status(), StatusCode::OK);
        assert_eq!((free(&limiter, &policy).await, free(&limiter, &rate).await), (1, 10));
        drop(response);
        becomes_free(&limiter, &policy, 2).await;
    }
}
