//! The layer adds its headers to any that an inner service has sent.
//!
//! Each line is a header: its first byte chooses the name.
#![no_main]

use std::{
    convert::Infallible,
    task::{Context, Poll, Waker},
};

use http::{HeaderValue, Request, Response};
use libfuzzer_sys::fuzz_target;
use plimsoll::{Limiter, Policy, Quota, RateLimitLayer, Rule, by};
use tower::{Layer, Service, service_fn};

const NAMES: [&str; 7] = [
    "retry-after",
    "ratelimit",
    "ratelimit-policy",
    "x-ratelimit-limit",
    "x-ratelimit-remaining",
    "x-ratelimit-reset",
    "content-length",
];

thread_local! {
    static LIMITER: Limiter = Limiter::in_memory();
}

fuzz_target!(|bytes: &[u8]| {
    let mut inner = Response::new(String::new());
    for line in bytes.split(|byte| *byte == b'\n') {
        if let [name, value @ ..] = line
            && let Ok(value) = HeaderValue::from_bytes(value)
        {
            inner.headers_mut().append(NAMES[usize::from(*name) % NAMES.len()], value);
        }
    }
    let sent = inner.headers().clone();
    let inner = service_fn(|_: Request<()>| std::future::ready(Ok::<_, Infallible>(inner.clone())));
    // A cost of 0 is always admitted.
    let rule = Rule::new(Policy::new("p", Quota::per_minute(5)).unwrap(), by::constant("k"));
    let rule = rule.cost(|_| 0).cost_of_body(|_| 0);
    let layer = RateLimitLayer::new(LIMITER.with(Limiter::clone), rule);
    let request = Request::head("/").body(()).unwrap();
    let mut future = Box::pin(layer.layer(inner).call(request));
    let Poll::Ready(Ok(response)) = future.as_mut().poll(&mut Context::from_waker(Waker::noop()))
    else {
        panic!("it waits")
    };
    let headers = response.headers();
    let names = ["ratelimit", "ratelimit-policy"];
    let is_draft11 =
        |name| sent.get_all(name).iter().all(|line| line.as_bytes().starts_with(b"\""));
    let adds = names.into_iter().all(is_draft11);
    for name in names {
        let lines = headers.get_all(name).iter();
        if !adds {
            assert!(lines.eq(sent.get_all(name)));
            continue;
        }
        let own = lines.filter(|line| line.as_bytes().starts_with(b"\"p\";")).count();
        let before = sent.get_all(name).iter();
        assert!(own > before.filter(|line| line.as_bytes().starts_with(b"\"p\";")).count());
    }
    // The smaller number of units stays.
    let sent =
        sent.get("x-ratelimit-remaining").and_then(|it| it.to_str().ok()?.parse::<u64>().ok());
    let shown = headers["x-ratelimit-remaining"].to_str().unwrap().parse::<u64>().unwrap();
    assert_eq!(shown, sent.map_or(5, |sent| sent.min(5)));
});
