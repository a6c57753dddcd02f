//! The status of a denial follows the verdict, not the presence of a wait.

use std::{convert::Infallible, time::Duration};

use bytes::Bytes;
use http::{Method, Request, Response, Version};
use http_body_util::Empty;
use plimsoll::{
    Limiter, RateLimitLayer, Rule, by,
    clock::Timestamp,
    decision::Standing,
    error::ErrorKind,
    store::{
        Answer, ChargeReply, Mark, Request as StoreRequest, Source, Store, StoreReply, Verdict,
    },
};
use plimsoll_pace::{PaceError, PaceLayer};
use tower::{Layer, Service, ServiceExt, service_fn};

use super::{get, limiter, policy, rule, text};

/// A store that denies every charge and names this wait.
#[derive(Debug, Clone, Copy)]
struct Denies(Verdict, Option<Duration>);

impl Store for Denies {
    fn call(&self, request: StoreRequest<'_>, _: Option<std::time::Instant>) -> Answer {
        let StoreRequest::Acquire(charges) = request else { unreachable!("only checks are made") };
        let standing = Standing {
            limit: 10,
            remaining: 0,
            next_after: Duration::ZERO,
            reset_after: Duration::from_secs(60),
            retry_after: self.1,
        };
        let reply = ChargeReply { verdict: self.0, units: 0, standing, mark: Mark::default() };
        let time = Timestamp::from_micros(super::START);
        Answer::ready(Ok(StoreReply::new(time, Source::Shared, charges.iter().map(|_| reply))))
    }
}

fn layer(store: Denies) -> RateLimitLayer {
    RateLimitLayer::new(Limiter::new(store), rule("api", "10/min"))
}

async fn inner(_: Request<Empty<Bytes>>) -> Result<Response<Empty<Bytes>>, Infallible> {
    Ok(Response::new(Empty::new()))
}

async fn ask(layer: RateLimitLayer, grpc: bool) -> (u16, http::HeaderMap, String) {
    let mut request = get("/");
    if grpc {
        let content_type = "application/grpc".parse().unwrap();
        request.headers_mut().insert("content-type", content_type);
        (*request.method_mut(), *request.version_mut()) = (Method::POST, Version::HTTP_2);
    }
    let mut service = layer.layer(service_fn(inner));
    text(service.ready().await.unwrap().call(request).await.unwrap()).await
}

const NO_WAIT: Denies = Denies(Verdict::Refused, None);
const WAIT: Denies = Denies(Verdict::Refused, Some(Duration::from_secs(7)));
/// A wait counts as 2^53 - 1 microseconds at most.
const ENDLESS: Denies = Denies(Verdict::Refused, Some(Duration::MAX));
const NEVER: Denies = Denies(Verdict::OverCapacity, None);
const NEVER_WITH_WAIT: Denies = Denies(Verdict::OverCapacity, Some(Duration::from_secs(7)));

#[tokio::test]
async fn problem_documents() {
    for (store, expected, retry_after) in [
        (NO_WAIT, 429, None),
        (WAIT, 429, Some("7")),
        (ENDLESS, 429, Some("9007199255")),
        (NEVER, 403, None),
        (NEVER_WITH_WAIT, 403, None),
    ] {
        let (status, headers, body) = ask(layer(store), false).await;
        assert_eq!(status, expected, "{store:?}");
        assert_eq!(headers.get("retry-after").map(|it| it.to_str().unwrap()), retry_after);
        let problem: serde_json::Value = serde_json::from_str(&body).unwrap();
        assert_eq!(problem["status"], expected);
        assert_eq!(problem["violated-policies"][0], "api");
        let quota_exceeded = problem["type"].as_str().unwrap().ends_with("#quota-exceeded");
        assert_eq!(quota_exceeded, expected == 429, "{body}");
        assert_eq!(problem["detail"].as_str().unwrap().contains("seconds"), retry_after.is_some());
    }
}

#[tokio::test]
async fn plain_text() {
    for (store, expected, retries) in
        [(NO_WAIT, 429, false), (WAIT, 429, true), (NEVER, 403, false)]
    {
        let (status, headers, body) = ask(layer(store).plain_text(), false).await;
        assert_eq!((status, headers.contains_key("retry-after")), (expected, retries), "{store:?}");
        assert_eq!(body.contains("again in 7 seconds"), retries, "{body}");
        assert_eq!(body.contains("costs more"), expected == 403, "{body}");
    }
}

#[tokio::test]
async fn grpc() {
    for (store, expected, message, retries) in [
        (NO_WAIT, "8", "The quota allows no such request at the moment.", false),
        (WAIT, "8", "The quota allows this request again in 7 seconds.", true),
        (
            NEVER,
            "9",
            "This request costs more than the quota can ever hold: waiting does not help.",
            false,
        ),
        (
            NEVER_WITH_WAIT,
            "9",
            "This request costs more than the quota can ever hold: waiting does not help.",
            false,
        ),
    ] {
        let (status, headers, _) = ask(layer(store), true).await;
        assert_eq!(status, 200);
        assert_eq!(headers["grpc-status"], expected, "{store:?}");
        assert_eq!(headers["grpc-message"], message);
        assert_eq!(headers.contains_key("grpc-retry-pushback-ms"), retries);
    }
}

#[tokio::test]
async fn paced_calls() {
    for (store, over_capacity, text) in [
        (NO_WAIT, false, "the quota \"api\" does not allow this call at the moment"),
        (WAIT, false, "the quota \"api\" allows this call in 7s"),
        (NEVER, true, "the call costs more than the quota \"api\" can ever hold"),
    ] {
        for max_wait in [Duration::ZERO, Duration::from_millis(10)] {
            let layer = PaceLayer::new(Limiter::new(store), rule("api", "10/min")).wait(max_wait);
            let error = layer.layer(service_fn(inner)).oneshot(get("/")).await.unwrap_err();
            assert!(matches!(error, PaceError::Denied { .. }));
            assert_eq!((error.is_over_capacity(), error.to_string()), (over_capacity, text.into()));
        }
    }
}

/// A missing peer address is a mistake of the server, and not of the client.
#[tokio::test]
async fn a_missing_peer_address() {
    let rule = || Rule::new(policy("api", "10/min"), by::peer_ip());
    let (status, headers, body) = ask(RateLimitLayer::new(limiter().0, rule()), true).await;
    assert_eq!((status, &headers["grpc-status"], body.as_str()), (200, &"13".parse().unwrap(), ""));
    let message = headers["grpc-message"].to_str().unwrap();
    assert!(message.contains("enable the feature tonic"), "{message}");
    assert!(!message.contains('%'), "it needs no percent-encoding");

    let mut client = PaceLayer::new(limiter().0, rule()).layer(service_fn(inner));
    let Err(PaceError::Limiter(error)) = client.ready().await.unwrap().call(get("/")).await else {
        panic!("a call has no peer")
    };
    assert!(
        error.kind() == ErrorKind::Invalid && error.to_string().contains("No peer address"),
        "{error}"
    );
}
