//! The overhead of the layer over a bare service, beside `tower_governor`. The time of the bare
//! service in the same round is subtracted on both sides. Both sides are keyed by the address in
//! `X-Forwarded-For`, of one client or of many in a random order.

mod support;

use std::{
    cell::RefCell,
    convert::Infallible,
    future::{Ready, ready as done},
    hint::black_box,
    net::{IpAddr, Ipv4Addr},
    task::{Context, Poll},
};

use axum::body::Body;
use http::{HeaderValue, Request, Response, Version, request::Parts};
use plimsoll::{
    Key, Limiter, Policy, RateLimitLayer, Rule,
    layer::{Headers, ResetFormat},
};
use support::{Bar, compare_rounds, heading, keys::Walk, measuring, ready, row, time};
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
    let three = Headers::none().x_ratelimit(ResetFormat::Seconds);
    let one = clients(1);
    against(
        "exempt, no headers (theirs: allowed, no headers)",
        limited(ALLOWED, Headers::none()).exempt(|_| true).layer(Bare),
        plain(ALLOWED),
        &one,
        Bar::Open,
    );
    for (count, how_many) in
        [(1, "1 client"), (1_000, "1k clients"), (10_000, "10k clients"), (100_000, "100k clients")]
    {
        let clients = clients(count);
        against(
            &format!("no headers, {how_many}"),
            ours(ALLOWED, Headers::none()),
            plain(ALLOWED),
            &clients,
            Bar::AtMost(1.6),
        );
        against(
            &format!("X-RateLimit (3, theirs 2), {how_many}"),
            ours(ALLOWED, three),
            marked(ALLOWED),
            &clients,
            Bar::AtMost(1.05),
        );
        against(
            &format!("default set (5, theirs 2), {how_many}"),
            ours(ALLOWED, Headers::default()),
            marked(ALLOWED),
            &clients,
            Bar::AtMost(1.35),
        );
    }
    against(
        "denied, problem document, default set",
        ours(DENIED, Headers::default()),
        marked(DENIED),
        &one,
        Bar::AtMost(0.1),
    );

    heading("the same, two sides of this crate");
    let (denied, allowed) = (ours(DENIED, Headers::default()), ours(ALLOWED, Headers::default()));
    against("denied over allowed, default set", denied, allowed, &one, Bar::AtMost(3.0));

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

/// Times both sides' overhead over the bare service, for requests of these clients.
fn against<A, AB, B, BB>(what: &str, mut ours: A, mut theirs: B, clients: &[HeaderValue], bar: Bar)
where
    A: Service<Request<Body>, Response = Response<AB>>,
    B: Service<Request<Body>, Response = Response<BB>>,
{
    // Both sides know all clients before they are timed. The first request of a spent limit is let through.
    let turns = clients.len() as u64;
    run(&mut ours, &mut Walk::new(clients), turns);
    run(&mut theirs, &mut Walk::new(clients), turns);
    let [mut our_walk, mut their_walk] = [(); 2].map(|()| Walk::new(clients));
    let bare_walk = RefCell::new(Walk::new(clients));
    let overhead = |with: f64| (with - run(&mut Bare, &mut bare_walk.borrow_mut(), CALLS)).max(0.1);
    let comparison = compare_rounds(
        ROUNDS,
        || overhead(run(&mut ours, &mut our_walk, CALLS)),
        || overhead(run(&mut theirs, &mut their_walk, CALLS)),
    );
    row(what, "ns", comparison, bar);
}

fn run<S, RB>(service: &mut S, clients: &mut Walk<'_, HeaderValue>, calls: u64) -> f64
where
    S: Service<Request<Body>, Response = Response<RB>>,
{
    time(calls, &mut || {
        let request = Request::get("/").header("x-forwarded-for", clients.step().clone());
        let request = request.body(Body::empty()).unwrap();
        black_box(ready(service.call(request)).is_ok());
    })
}

/// Returns the addresses of `count` clients.
fn clients(count: u32) -> Vec<HeaderValue> {
    let address = |number: u32| Ipv4Addr::from_bits(0x0a00_0000 + number).to_string();
    (0..count).map(|number| HeaderValue::try_from(address(number)).unwrap()).collect()
}

/// As [`run`], for requests with this content type, which may be gRPC.
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
) -> impl Service<Request<Body>, Response = Response<plimsoll::layer::ResponseBody<Body>>> {
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
