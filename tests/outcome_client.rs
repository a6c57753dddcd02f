//! The other direction: calls to services that have quotas.

use std::{convert::Infallible, time::Duration};

use http::{Request, Response, StatusCode};
use tollgate::{
    Limiter, ManualClock, Policy, Rule, by,
    client::{PaceError, PaceLayer},
    store::{MemoryConfig, MemoryStore},
};
use tower::{Layer, Service, ServiceExt, service_fn};

fn policy(name: &str, quota: &str) -> Policy {
    Policy::new(name, quota.parse().unwrap()).unwrap()
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
async fn waits_its_turn() {
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
async fn what_can_never_be_afforded_fails_at_once() {
    let rule = Rule::new(policy("upstream", "2/min"), by::constant("us")).cost(|_| 3);
    let layer = PaceLayer::new(Limiter::in_memory(), rule).wait(Duration::from_secs(3600));
    let error = layer.layer(service_fn(upstream)).oneshot(Request::new("")).await.unwrap_err();
    assert!(matches!(error, PaceError::Denied { retry_after: None, .. }), "{error}");
}
