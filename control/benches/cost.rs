//! The cost of overrides and of the sketch of offenders for a check, against a check without them.
//!
//! `cargo bench -p plimsoll-control --features admin --bench cost`
//!
//! Each row has the time of one call with them and of one without, in nanoseconds, and the median of the ratios
//! of rounds that alternate, with its quartiles. The bar is the promise: a check under a policy with overrides and
//! the sketch takes at most 1.05 times as long. `control/README.md` has the
//! figures.

#[path = "../../benches/support/mod.rs"]
mod support;

use std::{
    convert::Infallible,
    future::{Ready, ready as immediately},
    hint::black_box,
    task::{Context, Poll},
};

use http::{Request, Response, request::Parts};
use plimsoll::{
    Decision, Limiter, MemoryStore, Policy, RateLimitLayer, RedisStore, Rule, by,
    memory::MemoryConfig,
};
use plimsoll_control::{KeyType, Offenders, Origin, Override, OverrideKind, Overrides, Registry};
use plimsoll_testing::servers::Server;
use support::{Bar, compare, heading, ready, row};
use tokio::runtime::{Builder, Runtime};
use tower_layer::Layer;
use tower_service::Service;

const ROUNDS: usize = 201;
const KEY: u64 = 42;
const AMPLE: &str = "4000000000/s token-bucket(4000000000)";
const TIGHT: &str = "1/d token-bucket(1)";
/// The promise for overrides and the sketch.
const MOST: Bar = Bar::AtMost(1.05);

fn main() {
    if !support::measuring() {
        return;
    }
    let runtime = Builder::new_current_thread().enable_all().build().expect("a runtime");
    heading("A check in memory with overrides and the sketch / without, 1 thread");
    in_memory(&runtime, "allowed", AMPLE, 0, MOST);
    in_memory(&runtime, "allowed, 100 keys overridden", AMPLE, 100, MOST);
    in_memory(&runtime, "denied", TIGHT, 0, MOST);
    heading("A request through the layer, in memory");
    let sketch = || {
        let offenders = Offenders::new(100);
        move |decision: &Decision<'_>, _: &Parts| offenders.record(decision)
    };
    through_layer(&runtime, "allowed", AMPLE, 0, sketch(), MOST);
    through_layer(&runtime, "allowed, 100 keys overridden", AMPLE, 100, sketch(), MOST);
    through_layer(&runtime, "denied", TIGHT, 0, sketch(), MOST);
    heading("A check in Redis, one task");
    in_redis(&runtime);
}

/// A policy with an override of its quota, and with others of its keys.
fn overridden(runtime: &Runtime, limiter: &Limiter, quota: &str, keys: u64) -> (Policy, Overrides) {
    let registry = Registry::default();
    let policy = Policy::new("overridden", TIGHT).expect("a policy");
    registry.register(policy.clone(), Origin::Code, KeyType::Integer).expect("a new name");
    let overrides = Overrides::in_memory(registry, limiter.clone());
    let set = |key: Option<u64>| {
        let kind = OverrideKind::Quota(quota.parse().expect("a quota"));
        let mut new = Override::new("overridden", kind, "a benchmark", "a benchmark");
        new.key = key.map(|key| key.to_string());
        drop(runtime.block_on(overrides.set(new, None)).expect("set"));
    };
    set(None);
    (0..keys).for_each(|key| set(Some(1_000 + key)));
    (policy, overrides)
}

fn in_memory(runtime: &Runtime, what: &str, quota: &str, keys: u64, bar: Bar) {
    let limiter = Limiter::new(MemoryStore::new(MemoryConfig::default()));
    let plain = Policy::new("plain", quota).expect("a policy");
    let (policy, _overrides) = overridden(runtime, &limiter, quota, keys);
    let offenders = Offenders::new(100);
    let comparison = compare(
        ROUNDS,
        || {
            let decision = ready(limiter.check(policy.charge(black_box(KEY), 1))).expect("decided");
            offenders.record(black_box(&decision));
        },
        || {
            let decision = ready(limiter.check(plain.charge(black_box(KEY), 1))).expect("decided");
            black_box(&decision);
        },
    );
    row(what, "ns", comparison, bar);
}

/// A service that answers at once.
#[derive(Clone)]
struct Answers;

impl Service<Request<()>> for Answers {
    type Response = Response<String>;
    type Error = Infallible;
    type Future = Ready<Result<Self::Response, Infallible>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, _: Request<()>) -> Self::Future {
        immediately(Ok(Response::new(String::new())))
    }
}

fn through_layer(
    runtime: &Runtime,
    what: &str,
    quota: &str,
    keys: u64,
    record: impl Fn(&Decision<'_>, &Parts) + Send + Sync + 'static,
    bar: Bar,
) {
    let limiter = Limiter::new(MemoryStore::new(MemoryConfig::default()));
    let plain = Policy::new("plain", quota).expect("a policy");
    let (policy, _overrides) = overridden(runtime, &limiter, quota, keys);
    let layer =
        |policy| RateLimitLayer::new(limiter.clone(), Rule::new(policy, by::header("x-key")));
    let mut ours = layer(policy).on_decision(record).layer(Answers);
    let mut theirs = layer(plain).layer(Answers);
    let request = || Request::builder().header("x-key", "alice").body(()).expect("a request");
    let comparison = compare(
        ROUNDS,
        || drop(black_box(ready(ours.call(request())))),
        || drop(black_box(ready(theirs.call(request())))),
    );
    row(what, "ns", comparison, bar);
}

fn in_redis(runtime: &Runtime) {
    let server = Server::start();
    let store = runtime.block_on(RedisStore::connect(&server.url())).expect("a store");
    let limiter = Limiter::new(store);
    let plain = Policy::new("plain", AMPLE).expect("a policy");
    let (policy, _overrides) = overridden(runtime, &limiter, AMPLE, 100);
    let offenders = Offenders::new(100);
    let comparison = compare(
        ROUNDS,
        || {
            let decision = runtime.block_on(limiter.check(policy.charge(black_box(KEY), 1)));
            offenders.record(&decision.expect("decided"));
        },
        || drop(runtime.block_on(limiter.check(plain.charge(black_box(KEY), 1)))),
    );
    row("allowed, 100 keys overridden", "ns", comparison, MOST);
}
