//! The memory of requests that wait inside a layer.

use std::{convert::Infallible, future::Future, task::Context, time::Duration};

use http::{Request, Response};
use plimsoll::{Limiter, Policy, RateLimitLayer, Rule, by};
use plimsoll_testing::alone;
use stats_alloc::Region;
use tower::{Layer, Service, service_fn};

use crate::ALLOCATOR;

/// The most bytes that one waiting request may take, with its head of one header.
const MAX_BYTES: usize = 4_096;

/// 10,000 of 100,000 requests wait, and the others leave nothing behind.
#[test]
fn the_requests_that_wait_are_bounded_and_small() {
    if !alone("delay::the_requests_that_wait_are_bounded_and_small") {
        return;
    }
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
    let _context = runtime.enter();
    let policy = Policy::new("api", "1/s token-bucket(1)").unwrap();
    let layer =
        RateLimitLayer::new(Limiter::in_memory(), Rule::new(policy, by::header("x-api-key")));
    let inner =
        service_fn(async |_: Request<()>| Ok::<_, Infallible>(Response::new(String::new())));
    let mut service = layer.delay(Duration::from_secs(86_400)).layer(inner);
    let mut call = || {
        let request = Request::get("/").header("x-api-key", "alice").body(()).unwrap();
        let mut future = Box::pin(service.call(request));
        let mut now = Context::from_waker(std::task::Waker::noop());
        future.as_mut().poll(&mut now).is_pending().then_some(future)
    };
    assert!(call().is_none());
    let mut waiting = Vec::with_capacity(10_000);
    let region = Region::new(ALLOCATOR);
    let held = || {
        let change = region.change();
        change.bytes_allocated.saturating_sub(change.bytes_deallocated)
    };
    waiting.extend((0..100_000).filter_map(|_| call()));
    assert_eq!(waiting.len(), 10_000);
    let bytes = held() / waiting.len();
    eprintln!("a waiting request takes {bytes} bytes");
    assert!(bytes <= MAX_BYTES, "{bytes}");
    waiting.clear();
    let left = held();
    assert!(left < 1 << 20, "{left} bytes are left");
}
