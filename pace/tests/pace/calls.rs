//! The other direction: calls to services that have quotas.

use std::{
    convert::Infallible,
    task::{Context, Poll},
    time::Duration,
};

use http::{Request, Response, StatusCode};
use plimsoll::{
    Error, Limiter, MemoryStore, OnFailure, Policy, Resilience, Rule, by,
    clock::ManualClock,
    error::ErrorKind,
    memory::MemoryConfig,
    store::{Answer, Request as StoreRequest, Store},
};
use plimsoll_pace::{PaceError, PaceLayer};
use tower::{Layer, Service, ServiceExt, service_fn};

fn policy(name: &str, quota: &str) -> Policy {
    Policy::new(name, quota).unwrap()
}

async fn upstream(request: Request<&'static str>) -> Result<Response<String>, Infallible> {
    let mut response = Response::new(String::new());
    if *request.body() == "busy" {
        *response.status_mut() = StatusCode::SERVICE_UNAVAILABLE;
    }
    Ok(response)
}

#[tokio::test]
async fn fails_with_an_error_of_its_own() {
    let clock = ManualClock::at(1_000_000);
    let limiter = Limiter::new(MemoryStore::new(MemoryConfig::default().clock(clock.clone())));
    let rule = Rule::new(policy("upstream", "2/min"), by::constant("us"))
        .refund_if(|response| response.status == StatusCode::SERVICE_UNAVAILABLE);
    let mut client = PaceLayer::new(limiter, rule).layer(service_fn(upstream));
    for body in ["", "busy", "busy", "busy", ""] {
        let response = client.ready().await.unwrap().call(Request::new(body)).await.unwrap();
        assert_eq!(response.status() == 503, body == "busy");
    }
    let error = client.ready().await.unwrap().call(Request::new("")).await.unwrap_err();
    assert!(error.is_denied());
    assert_eq!(error.retry_after(), Some(Duration::from_secs(60)));
    assert_eq!(error.to_string(), "the quota \"upstream\" allows this call in 60s");
    clock.advance(Duration::from_secs(60));
    assert!(client.ready().await.unwrap().call(Request::new("")).await.is_ok());
}

#[tokio::test]
async fn calls_wait_for_their_turn() {
    let rule = Rule::new(policy("upstream", "2/100ms"), by::constant("us"));
    let layer = PaceLayer::new(Limiter::in_memory(), rule).wait(Duration::from_secs(5));
    let client = layer.layer(service_fn(upstream));
    let start = tokio::time::Instant::now();
    let calls = (0..6).map(|_| client.clone().oneshot(Request::new("")));
    for response in futures_util::future::join_all(calls).await {
        assert_eq!(response.unwrap().status(), 200);
    }
    assert!(start.elapsed() >= Duration::from_millis(200), "{:?}", start.elapsed());
}

#[tokio::test]
async fn a_cost_over_capacity_fails_at_once() {
    let rule = Rule::new(policy("upstream", "2/min"), by::constant("us")).cost(|_| 3);
    let layer = PaceLayer::new(Limiter::in_memory(), rule).wait(Duration::from_secs(3600));
    let error = layer.layer(service_fn(upstream)).oneshot(Request::new("")).await.unwrap_err();
    assert!(matches!(error, PaceError::Denied { retry_after: None, .. }), "{error}");
}

#[derive(Debug)]
struct Failing(ErrorKind);

impl Store for Failing {
    fn call(&self, _: StoreRequest<'_>, _: Option<std::time::Instant>) -> Answer {
        Answer::ready(Err(Error::new(self.0, "no answer")))
    }
}

#[tokio::test]
async fn on_failure_decides_when_the_limiter_cannot() {
    let call = async |kind: ErrorKind, on_failure: OnFailure, shadow: bool| {
        let rule =
            Rule::new(policy("upstream", "2/min"), by::constant("us")).on_failure(on_failure);
        let rule = if shadow { rule.shadow() } else { rule };
        let limiter = Limiter::with_resilience(Failing(kind), Resilience::none());
        PaceLayer::new(limiter, rule).layer(service_fn(upstream)).oneshot(Request::new("")).await
    };
    assert!(call(ErrorKind::Unavailable, OnFailure::Allow, false).await.is_ok());
    assert!(call(ErrorKind::Unavailable, OnFailure::Deny, true).await.is_ok(), "a shadow charge");
    let error = call(ErrorKind::Unavailable, OnFailure::Deny, false).await.unwrap_err();
    assert!(matches!(error, PaceError::Limiter(_)) && !error.is_denied(), "{error}");
    // A call that is invalid, or that gets no turn in time, is not let through.
    for kind in [ErrorKind::Invalid, ErrorKind::QueueFull, ErrorKind::Deadline] {
        assert!(call(kind, OnFailure::Allow, false).await.is_err(), "{kind:?}");
        assert!(call(kind, OnFailure::Deny, true).await.is_ok(), "{kind:?} of a shadow charge");
    }
}

#[tokio::test(start_paused = true)]
async fn a_call_that_may_wait_waits_for_the_store() {
    const WAIT: Duration = Duration::from_secs(30);
    for (on_failure, passes, waits) in [
        (None, false, true),
        (Some(OnFailure::Deny), false, true),
        (Some(OnFailure::Local), true, false),
        (Some(OnFailure::Allow), true, false),
    ] {
        let rule = Rule::new(policy("upstream", "2/min"), by::constant("us"));
        let rule = match on_failure {
            Some(on_failure) => rule.on_failure(on_failure),
            None => rule,
        };
        let limiter = Limiter::with_resilience(Failing(ErrorKind::Unavailable), Resilience::none());
        let layer = PaceLayer::new(limiter, rule).wait(WAIT);
        let start = tokio::time::Instant::now();
        let call = layer.layer(service_fn(upstream)).oneshot(Request::new("")).await;
        assert_eq!(call.is_ok(), passes, "{on_failure:?}");
        let waited = if waits { WAIT } else { Duration::ZERO };
        assert_eq!(start.elapsed(), waited, "{on_failure:?}");
    }
}

#[tokio::test]
async fn the_client_that_was_ready_makes_the_call() {
    /// Its clones are not ready.
    struct Strict(bool);
    impl Clone for Strict {
        fn clone(&self) -> Self {
            Self(false)
        }
    }
    impl Service<Request<&'static str>> for Strict {
        type Response = Response<String>;
        type Error = Infallible;
        type Future = std::future::Ready<Result<Response<String>, Infallible>>;
        fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
            self.0 = true;
            Poll::Ready(Ok(()))
        }
        fn call(&mut self, _: Request<&'static str>) -> Self::Future {
            assert!(std::mem::take(&mut self.0), "called before it was ready");
            std::future::ready(Ok(Response::new(String::new())))
        }
    }
    let rule = Rule::new(policy("upstream", "2/min"), by::constant("us"));
    let mut client = PaceLayer::new(Limiter::in_memory(), rule).layer(Strict(false));
    for admitted in [true, true, false, false] {
        let response = client.ready().await.unwrap().call(Request::new("")).await;
        assert_eq!(response.is_ok(), admitted);
    }
}
