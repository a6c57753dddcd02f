//! The overhead of the layer over a bare service, beside `tower_governor`. The time of the bare
//! service in the same round is subtracted on both sides. Both sides are keyed by the address in
//! `X-Forwarded-For`.

mod support;

use std::{
    convert::Infallible,
    future::{Ready, ready as done},
    hint::black_box,
    net::IpAddr,
    task::{Context, Poll},
};

use axum::body::Body;
use http::{Request, Response, Version, request::Parts};
use plimsoll::{Headers, Key, Limiter, Policy, RateLimitLayer, Reset, Rule};
use support::{Bar, compare_rounds, heading, measuring, ready, row, time};
use tower::{Layer, Service};
use tower_governor::{
    GovernorLayer, governor::GovernorConfigBuilder, key_extractor::SmartIpKeyExtractor,
};

const ROUNDS: usize = 151;
const CALLS: u64 = 4_000;
/// A limit that no round reaches, and one that is spent at once.
const ALLOWED: u32 = 1_000_000_000;
const DENIED: u32 = 1;

#[derive(Debug, Clone)]
struct Bare;

impl Service<Request<Body>> for Bare {
    type Response = Response<Body>;
    type Error = Infallible;
    type Future = Ready<Result<Response<Body>, Infallible>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, _: Request<Body>) -> Self::Future {
        done(Ok(Response::new(Body::empty())))
    }
}

fn main() {
    if !measuring() {
        return;
    }
    heading("overhead of the layer over a bare service, tower_governor beside it");
    let three = Headers::none().x_ratelimit(Reset::Seconds);
    against(
        "exempt, no headers (theirs: allowed, no headers)",
        limited(ALLOWED, Headers::none()).exempt(|_| true).layer(Bare),
        plain(ALLOWED),
        Bar::Open,
    );
    against(
        "allowed, no headers",
        ours(ALLOWED, Headers::none()),
        plain(ALLOWED),
        Bar::AtMost(1.8),
    );
    against(
        "allowed, X-RateLimit (3, theirs 2)",
        ours(ALLOWED, three),
        marked(ALLOWED),
        Bar::AtMost(1.1),
    );
    against(
        "allowed, default set (5, theirs 2)",
        ours(ALLOWED, Headers::default()),
        marked(ALLOWED),
        Bar::AtMost(1.4),
    );
    against(
        "denied, problem document, default set",
        ours(DENIED, Headers::default()),
        marked(DENIED),
        Bar::AtMost(0.1),
    );

    heading("the same, two sides of this crate");
    let (denied, allowed) = (ours(DENIED, Headers::default()), ours(ALLOWED, Headers::default()));
    against("denied over allowed, default set", denied, allowed, Bar::AtMost(3.0));

    heading("time of a call, its request included");
    let (mut grpc, mut http) = (ours(DENIED, Headers::default()), ours(DENIED, Headers::default()));
    run_as("application/grpc", &mut grpc);
    run_as("application/json", &mut http);
    let comparison = compare_rounds(
        ROUNDS,
        || run_as("application/grpc", &mut grpc),
        || run_as("application/json", &mut http),
    );
    row("denied, gRPC over HTTP, default set", "ns", comparison, Bar::AtMost(1.3));
}

/// Times both sides' overhead over the bare service.
fn against<A, AB, B, BB>(what: &str, mut ours: A, mut theirs: B, bar: Bar)
where
    A: Service<Request<Body>, Response = Response<AB>>,
    B: Service<Request<Body>, Response = Response<BB>>,
{
    // The first request of a spent limit is let through.
    run(&mut ours);
    run(&mut theirs);
    let overhead = |with: f64| (with - run(&mut Bare)).max(0.1);
    let comparison =
        compare_rounds(ROUNDS, || overhead(run(&mut ours)), || overhead(run(&mut theirs)));
    row(what, "ns", comparison, bar);
}

fn run<S, RB>(service: &mut S) -> f64
where
    S: Service<Request<Body>, Response = Response<RB>>,
{
    time(CALLS, &mut || {
        let request = Request::get("/").header("x-forwarded-for", "203.0.113.7");
        let request = request.body(Body::empty()).unwrap();
        black_box(ready(service.call(request)).is_ok());
    })
}

/// As [`run`], for requests of gRPC, if the content type is that of gRPC.
fn run_as<S, RB>(content_type: &'static str, service: &mut S) -> f64
where
    S: Service<Request<Body>, Response = Response<RB>>,
{
    time(CALLS, &mut || {
        let request = Request::post("/")
            .version(Version::HTTP_2)
            .header("x-forwarded-for", "203.0.113.7")
            .header("content-type", content_type);
        let request = request.body(Body::empty()).unwrap();
        black_box(ready(service.call(request)).is_ok());
    })
}

fn ours(
    limit: u32,
    headers: Headers,
) -> impl Service<Request<Body>, Response = Response<plimsoll::ResponseBody<Body>>> {
    limited(limit, headers).layer(Bare)
}

fn limited(limit: u32, headers: Headers) -> RateLimitLayer {
    let quota = format!("{limit}/h token-bucket({limit})");
    let policy = Policy::new("per-client", quota).unwrap();
    let rule = Rule::new(policy, |parts: &Parts| {
        let forwarded = parts.headers.get("x-forwarded-for")?.to_str().ok()?;
        forwarded.parse::<IpAddr>().ok().map(Key::from)
    });
    RateLimitLayer::new(Limiter::in_memory(), rule).headers(headers)
}

fn plain(limit: u32) -> impl Service<Request<Body>, Response = Response<Body>> {
    let config = GovernorConfigBuilder::default()
        .per_millisecond(3_600_000 / u64::from(limit).min(3_600_000))
        .burst_size(limit)
        .key_extractor(SmartIpKeyExtractor)
        .finish()
        .unwrap();
    GovernorLayer::new(config).layer(Bare)
}

fn marked(limit: u32) -> impl Service<Request<Body>, Response = Response<Body>> {
    let config = GovernorConfigBuilder::default()
        .per_millisecond(3_600_000 / u64::from(limit).min(3_600_000))
        .burst_size(limit)
        .key_extractor(SmartIpKeyExtractor)
        .use_headers()
        .finish()
        .unwrap();
    GovernorLayer::new(config).layer(Bare)
}
