//! The HTTP surface: the client's address behind proxies, the cost of a denial in gRPC and in HTTP
//! (the ratio is a row of `layer`), and the cost of telemetry that is compiled in without a
//! subscriber.
//!
//! `cargo bench --bench http`. The cost of telemetry is the line `layer/allowed` with
//! `--no-default-features --features axum,tracing,metrics` against the same line with
//! `--no-default-features --features axum`.

use std::{
    convert::Infallible,
    hint::black_box,
    net::SocketAddr,
    task::{Context, Poll, Waker},
};

use bytes::Bytes;
use criterion::{Criterion, criterion_group, criterion_main};
use http::{HeaderValue, Request, Response, request::Parts};
use http_body_util::Empty;
use plimsoll::{
    Limiter, Policy, RateLimitLayer, Rule,
    by::{self, ClientIp},
    layer::Headers,
};
use tower::{Layer, Service, service_fn};

fn three_hops(header: &'static str, value: &'static str) -> Parts {
    let (mut parts, ()) = Request::new(()).into_parts();
    let peer = SocketAddr::from(([10, 9, 0, 1], 443));
    parts.extensions.insert(axum::extract::ConnectInfo(peer));
    parts.headers.insert(header, HeaderValue::from_static(value));
    parts
}

fn client_ip(criterion: &mut Criterion) {
    let proxies: Vec<String> = (0..10).map(|n| format!("10.{n}.0.0/16")).collect();
    let mut group = criterion.benchmark_group("client_ip, 3 hops, 10 ranges");
    let xff = by::client_ip(ClientIp::x_forwarded_for(&proxies).unwrap());
    let parts = three_hops("x-forwarded-for", "203.0.113.195, 10.7.14.3, 10.8.0.22");
    group.bench_function("x-forwarded-for", |bencher| bencher.iter(|| xff(black_box(&parts))));
    let rfc = by::client_ip(ClientIp::forwarded(&proxies).unwrap());
    let parts = three_hops("forwarded", "for=203.0.113.195, for=10.7.14.3, for=10.8.0.22");
    group.bench_function("forwarded", |bencher| bencher.iter(|| rfc(black_box(&parts))));
    group.finish();
}

/// One call to its end, of a service that never waits.
fn call<S, B>(service: &mut S, request: Request<()>) -> Response<B>
where
    S: Service<Request<()>, Response = Response<B>, Error = Infallible>,
{
    let mut now = Context::from_waker(Waker::noop());
    let mut future = Box::pin(service.call(request));
    match future.as_mut().poll(&mut now) {
        Poll::Ready(Ok(response)) => response,
        _ => unreachable!("the service never waits"),
    }
}

fn request(content_type: &'static str) -> Request<()> {
    let mut request = Request::new(());
    request.headers_mut().insert("content-type", HeaderValue::from_static(content_type));
    request
}

fn layer(criterion: &mut Criterion) {
    let bare = || {
        service_fn(|_: Request<()>| {
            std::future::ready(Ok::<_, Infallible>(Response::new(Empty::<Bytes>::new())))
        })
    };
    let limited = |limit: u64, headers: Headers| {
        let quota = format!("{limit}/s token-bucket({limit})");
        let rule = Rule::new(Policy::new("calls", quota).unwrap(), by::constant("all"));
        RateLimitLayer::new(Limiter::in_memory(), rule).headers(headers).layer(bare())
    };
    let plenty = 1_000_000_000;
    let mut group = criterion.benchmark_group("layer");
    let mut service = bare();
    group.bench_function("bare", |bencher| {
        bencher.iter(|| call(&mut service, request("application/json")));
    });
    let mut service = limited(plenty, Headers::none());
    group.bench_function("allowed, no headers", |bencher| {
        bencher.iter(|| call(&mut service, request("application/json")));
    });
    let mut service = limited(plenty, Headers::default());
    group.bench_function("allowed", |bencher| {
        bencher.iter(|| call(&mut service, request("application/json")));
    });
    for (name, content_type) in
        [("denied, HTTP", "application/json"), ("denied, gRPC", "application/grpc")]
    {
        let quota = "1/h";
        let rule = Rule::new(Policy::new("calls", quota).unwrap(), by::constant("all"));
        let mut service = RateLimitLayer::new(Limiter::in_memory(), rule).layer(bare());
        call(&mut service, request(content_type));
        group.bench_function(name, |bencher| {
            bencher.iter(|| call(&mut service, request(content_type)));
        });
    }
    group.finish();
}

criterion_group!(benches, client_ip, layer);
criterion_main!(benches);
