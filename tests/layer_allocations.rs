//! With the embedded store a request costs no allocation but those of the headers it is answered
//! with, and a denial one more for its document.

use std::{
    alloc::System,
    convert::Infallible,
    future::{Future, Ready, ready},
    hint::black_box,
    pin::pin,
    task::{Context, Poll, Waker},
};

use http::{HeaderMap, Request, Response, StatusCode};
use stats_alloc::{INSTRUMENTED_SYSTEM, Region, StatsAlloc};
use tollgate::{Headers, Limiter, Policy, RateLimitLayer, Reset, Rule, by};
use tower::{Layer, Service};

#[global_allocator]
static ALLOCATOR: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

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
    let mut call = || {
        let request = Request::get("/").header("x-api-key", "alice").body(()).unwrap();
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

fn layered(quota: &str, headers: Headers) -> tollgate::RateLimit<Handler> {
    let policy = Policy::new("api", quota.parse().unwrap()).unwrap();
    let rule = Rule::new(policy, by::header("x-api-key"));
    RateLimitLayer::new(Limiter::in_memory(), rule).headers(headers).layer(Handler)
}

/// One test, so that no other counts here.
#[test]
fn only_header_values_and_documents_allocate() {
    let three = || Headers::none().x_ratelimit(Reset::Seconds);
    let bare = allocations(&mut Handler, StatusCode::OK);
    let allowed = |quota, headers| allocations(&mut layered(quota, headers), StatusCode::OK) - bare;
    // Numbers below 1000 need none. Of a large limit `X-RateLimit-Remaining` needs one, and of the
    // draft's headers `RateLimit`: the values that stay the same are kept.
    let (small, large) = ("900/1ms token-bucket(900)", "1000000/1ms token-bucket(1000000)");
    assert_eq!(allowed(small, Headers::none()), 0);
    assert_eq!(allowed(small, three()), 0);
    assert_eq!(allowed(large, three()), 1);
    assert_eq!(allowed(small, Headers::default()), 1);
    assert_eq!(allowed(large, Headers::default()), 2);

    // A denial does not come to the handler: it has a map of its own, which is two, and a document.
    let request = bare - 2;
    let denied = |headers| {
        let mut service = layered("1/day token-bucket(1)", headers);
        allocations(&mut service, StatusCode::TOO_MANY_REQUESTS) - request
    };
    // Retry-After and X-RateLimit-Reset are above 999 s.
    assert_eq!(denied(Headers::none()), 4);
    assert_eq!(denied(three()), 5);
    assert_eq!(denied(Headers::default()), 6);
}
