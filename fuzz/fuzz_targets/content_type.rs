//! A denial in the form of gRPC goes to gRPC requests alone, repeats no text of the client, and is not
//! stored by caches.
//!
//! The first byte chooses the method, the second the version, and the rest are lines of `Content-Type`.
#![no_main]

use std::{
    convert::Infallible,
    task::{Context, Poll, Waker},
};

use http::{HeaderValue, Method, Request, Response, Version};
use libfuzzer_sys::fuzz_target;
use plimsoll::{Limiter, Policy, Quota, RateLimitLayer, Rule, by};
use tower::{Layer, Service, service_fn};

const METHODS: [Method; 4] = [Method::POST, Method::GET, Method::HEAD, Method::PUT];
const VERSIONS: [Version; 4] =
    [Version::HTTP_11, Version::HTTP_2, Version::HTTP_10, Version::HTTP_3];
const ANSWERS: [&str; 8] = [
    "application/grpc",
    "application/grpc+proto",
    "application/grpc+json",
    "application/grpc-web",
    "application/grpc-web+proto",
    "application/grpc-web+json",
    "application/grpc-web-text",
    "application/grpc-web-text+proto",
];

fuzz_target!(|bytes: &[u8]| {
    let [method, version, lines @ ..] = bytes else { return };
    let method = METHODS[usize::from(*method) % METHODS.len()].clone();
    let version = VERSIONS[usize::from(*version) % VERSIONS.len()];
    let mut request = Request::builder().method(&method).version(version).body(()).unwrap();
    let lines: Vec<_> = lines
        .split(|byte| *byte == b'\n')
        .filter_map(|line| HeaderValue::from_bytes(line).ok())
        .collect();
    for line in &lines {
        request.headers_mut().append("content-type", line.clone());
    }
    // A cost over capacity is denied without a state.
    let rule = Rule::new(Policy::new("p", Quota::per_minute(1)).unwrap(), by::constant("k"));
    let layer = RateLimitLayer::new(LIMITER.with(Limiter::clone), rule.cost(|_| 2));
    let inner = service_fn(|_: Request<()>| {
        std::future::ready(Ok::<_, Infallible>(Response::new(String::new())))
    });
    let mut future = Box::pin(layer.layer(inner).call(request));
    let Poll::Ready(Ok(response)) = future.as_mut().poll(&mut Context::from_waker(Waker::noop()))
    else {
        panic!("it waits")
    };
    let headers = response.headers();
    assert_eq!(headers["cache-control"], "no-store");
    let exact = match &lines[..] {
        [line] => ANSWERS.iter().position(|it| line.as_bytes().eq_ignore_ascii_case(it.as_bytes())),
        _ => None,
    };
    let http2 = version >= Version::HTTP_2;
    let expected = exact.filter(|index| method == Method::POST && (http2 || *index > 2));
    if !headers.contains_key("grpc-status") {
        assert_eq!(response.status(), 403);
        assert_eq!(headers["content-type"], "application/problem+json");
        assert_eq!(expected, None);
        return;
    }
    assert_eq!(response.status(), 200);
    assert!(method == Method::POST && lines.len() == 1);
    let answer = ANSWERS.iter().position(|known| headers["content-type"] == *known);
    let answer = answer.expect("a registered content type");
    assert!(http2 || answer > 2, "gRPC over HTTP/1");
    assert!(expected.is_none_or(|expected| expected == answer));
    let asked = lines[0].as_bytes().trim_ascii_start().to_ascii_lowercase();
    assert!(asked.starts_with(ANSWERS[answer].as_bytes()), "of the same kind");
});

thread_local! {
    static LIMITER: Limiter = Limiter::in_memory();
}
