//! With the embedded store, a request allocates only the headers of its response, and a denial also its
//! document.

use std::{
    convert::Infallible,
    future::{Future, Ready, ready},
    hint::black_box,
    pin::pin,
    task::{Context, Poll, Waker},
};

use http::{HeaderMap, Request, Response, StatusCode, request::Parts};
use plimsoll::{
    Algorithm, Limiter, Policy, Quota, RateLimitLayer, Rule, by,
    layer::{Headers, ResetFormat},
};
use plimsoll_testing::alone;
use stats_alloc::Region;
use tower::{Layer, Service};

use crate::ALLOCATOR;

/// A handler whose response has room for the headers of a layer.
#[derive(Clone)]
struct Handler;

impl Service<Request<()>> for Handler {
    type Response = Response<String>;
    type Error = Infallible;
    type Future = Ready<Result<Response<String>, Infallible>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, _: Request<()>) -> Self::Future {
        let mut response = Response::new(String::new());
        *response.headers_mut() = HeaderMap::with_capacity(12);
        ready(Ok(response))
    }
}

/// Returns the number of allocations for a request.
fn allocations<S, B>(service: &mut S, status: StatusCode) -> usize
where
    S: Service<Request<()>, Response = Response<B>, Error = Infallible>,
{
    allocations_of(&["alice"], service, status)
}

/// Returns the number of allocations for a request, if the requests of these keys alternate.
fn allocations_of<S, B>(keys: &[&'static str], service: &mut S, status: StatusCode) -> usize
where
    S: Service<Request<()>, Response = Response<B>, Error = Infallible>,
{
    let mut keys = keys.iter().cycle();
    let mut call = || {
        let key = *keys.next().unwrap();
        let request = Request::get("/").header("x-api-key", key).body(()).unwrap();
        let mut now = Context::from_waker(Waker::noop());
        let Poll::Ready(Ok(response)) = pin!(service.call(request)).poll(&mut now) else {
            panic!("an embedded store answers at once");
        };
        black_box(response).status()
    };
    // In its first requests, a layer looks for misuse.
    for _ in 0..1_000 {
        call();
    }
    assert_eq!(call(), status);
    // The harness may allocate at the same time, but not each time.
    let mut hundred = || {
        let region = Region::new(ALLOCATOR);
        for _ in 0..100 {
            call();
        }
        region.change().allocations
    };
    (0..5).map(|_| hundred()).min().unwrap_or(usize::MAX) / 100
}

fn layered(quota: &str, headers: Headers) -> plimsoll::layer::RateLimit<Handler> {
    let policy = Policy::new("api", quota).unwrap();
    let rule = Rule::new(policy, by::header("x-api-key"));
    RateLimitLayer::new(Limiter::in_memory(), rule).headers(headers).layer(Handler)
}

/// A check is in a box from its beginning to its decision.
const CHECK: usize = 1;
/// The headers for a response are in a box until it comes.
const ADDED: usize = 1;

#[test]
fn only_the_check_header_values_and_documents_allocate() {
    if !alone("layer::only_the_check_header_values_and_documents_allocate") {
        return;
    }
    let three = || Headers::none().x_ratelimit(ResetFormat::Seconds);
    let bare = allocations(&mut Handler, StatusCode::OK);
    let allowed = |quota, headers| allocations(&mut layered(quota, headers), StatusCode::OK) - bare;
    // Numbers below 1000 need none. Of a large limit, `X-RateLimit-Limit` and `X-RateLimit-Remaining` need one each,
    // and of the draft's headers `RateLimit`: its policy stays the same, and is kept.
    let (small, large) = ("900/1ms token-bucket(900)", "1000000/1ms token-bucket(1000000)");
    assert_eq!(allowed(small, Headers::none()), CHECK);
    assert_eq!(allowed(small, three()), CHECK + ADDED);
    assert_eq!(allowed(large, three()), CHECK + ADDED + 2);
    assert_eq!(allowed(small, Headers::default()), CHECK + ADDED + 1);
    assert_eq!(allowed(large, Headers::default()), CHECK + ADDED + 3);

    // Customers with quotas of their own do not replace each other's values.
    let policy = Policy::new("api", "1/day").unwrap();
    let rule = Rule::new(policy, by::header("x-api-key")).quota(|parts: &Parts| {
        let key = parts.headers.get("x-api-key")?.to_str().ok()?;
        let limit = if key == "alice" { 900 } else { 700 };
        let burst = Algorithm::TokenBucket { burst: limit };
        Quota::new(limit, std::time::Duration::from_millis(1), burst).ok()
    });
    let mut service = RateLimitLayer::new(Limiter::in_memory(), rule).layer(Handler);
    assert_eq!(
        allocations_of(&["alice", "bob"], &mut service, StatusCode::OK) - bare,
        CHECK + ADDED + 1
    );

    // A denial does not come to the handler: it has a map of its own, which is two, and a document.
    let request = bare - 2;
    let denied = |headers| {
        let mut service = layered("1/day token-bucket(1)", headers);
        allocations(&mut service, StatusCode::TOO_MANY_REQUESTS) - request
    };
    // Retry-After and X-RateLimit-Reset are above 999 s.
    assert_eq!(denied(Headers::none()), CHECK + 4);
    assert_eq!(denied(three()), CHECK + 5);
    assert_eq!(denied(Headers::default()), CHECK + 6);
}
