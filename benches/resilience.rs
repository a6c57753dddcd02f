//! The cost of the stages around a remote store, compared with the embedded store alone.

mod support;

use std::{
    convert::Infallible,
    hint::{black_box, spin_loop},
    pin::pin,
    task::{Context, Poll, Waker},
};

use axum::body::Body;
use http::{Request as HttpRequest, Response};
use plimsoll::{
    Error, Key, Limiter, MemoryStore, Policy, RateLimitLayer, Resilience, Rule,
    error::ErrorKind,
    memory::MemoryConfig,
    store::{Answer, Request, Source, Store, Traits},
};
use support::{
    Bar, compare, figure, heading,
    keys::{Walk, keys},
    measuring, ready, row, time,
};
use tokio::runtime::Builder;
use tower::{Layer, Service};

const ROUNDS: usize = 151;

/// An embedded store that passes for a shared one whose answers take no time.
#[derive(Debug)]
struct Instant(MemoryStore);

impl Store for Instant {
    fn call(&self, request: Request<'_>, deadline: Option<std::time::Instant>) -> Answer {
        let reply = self.0.call(request, deadline).now().unwrap();
        Answer::ready(reply.map(|mut reply| {
            reply.source = Source::Shared;
            reply
        }))
    }

    /// Returns true although it counts over the window alone: no other process shares it.
    fn traits(&self) -> Traits {
        let mut traits = Traits::default();
        traits.counts_leases = true;
        traits
    }
}

#[derive(Debug)]
struct Down;

impl Store for Down {
    fn call(&self, _: Request<'_>, _: Option<std::time::Instant>) -> Answer {
        Answer::ready(Err(Error::new(ErrorKind::Unavailable, "down")))
    }
}

fn main() {
    if !measuring() {
        return;
    }
    // The breaker's prober runs on another thread, as in a service.
    let runtime = Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let _entered = runtime.enter();
    let key = "key-000000000000000000001";
    let policy = |quota: &str| Policy::new("bench", quota).unwrap();
    let instant = || Instant(MemoryStore::new(MemoryConfig::default()));
    heading("what stands around a store, beside a check of the embedded one, ns");

    let denied = policy("1/h token-bucket(1)");
    let (cached, embedded) = (Limiter::new(instant()), Limiter::in_memory());
    for limiter in [&cached, &embedded] {
        let _ = ready(limiter.check(denied.charge(key, 1)));
    }
    // The next unit comes back in an hour: the cache asks again once a second.
    let hit = compare(
        ROUNDS,
        || drop(black_box(ready(cached.check(denied.charge(black_box(key), 1))))),
        || drop(black_box(ready(embedded.check(denied.charge(black_box(key), 1))))),
    );
    row("denied from the cache", "ns", hit, Bar::AtMost(2.0));

    let allowed = policy("1000000000/s token-bucket(1000000000)");
    let (around, bare) =
        (Limiter::new(instant()), Limiter::with_resilience(instant(), Resilience::none()));
    let miss = compare(
        ROUNDS,
        || drop(black_box(ready(around.check(allowed.charge(black_box(key), 1))))),
        || drop(black_box(ready(bare.check(allowed.charge(black_box(key), 1))))),
    );
    row("deadline, breaker, fallback, cache missed; beside none", "ns", miss, Bar::Open);
    let added = miss.ours - miss.theirs;
    figure("what they add", "ns", added, Bar::AtMost(400.0));

    for algorithm in ["token-bucket(1000000000)", "fixed-window"] {
        let policy = policy(&format!("1000000000/s {algorithm} leased(100ms)"));
        let (leasing, embedded) = (Limiter::new(instant()), Limiter::in_memory());
        // Begins to lease. Both sides are polled in the same loop, because the decision is moved once
        // more by it.
        (0..10_000).for_each(|_| drop(spin(leasing.check(policy.charge(key, 1)))));
        let stock = compare(
            ROUNDS,
            || drop(black_box(spin(leasing.check(policy.charge(black_box(key), 1))))),
            || drop(black_box(spin(embedded.check(policy.charge(black_box(key), 1))))),
        );
        row(&format!("from stock, {algorithm}"), "ns", stock, Bar::AtMost(1.4));

        let behind = |limiter: &Limiter| {
            let rule = Rule::new(policy.clone(), move |_| Key::from(key));
            RateLimitLayer::new(limiter.clone(), rule).layer(Bare)
        };
        let request = || HttpRequest::get("/").body(Body::empty()).unwrap();
        let (mut ours, mut theirs) = (behind(&leasing), behind(&embedded));
        let layers = compare(
            ROUNDS,
            || drop(black_box(spin(ours.call(request())))),
            || drop(black_box(spin(theirs.call(request())))),
        );
        let what = format!("a layer, from stock / embedded, {algorithm}");
        row(&what, "ns", layers, Bar::AtMost(1.05 * stock.ratio));
    }

    let local = Limiter::new(Down);
    let fallback = compare(
        ROUNDS,
        || drop(black_box(ready(local.check(allowed.charge(black_box(key), 1))))),
        || drop(black_box(ready(embedded.check(allowed.charge(black_box(key), 1))))),
    );
    row("breaker open, decided here", "ns", fallback, Bar::AtMost(1.4));

    let keys = keys(20_000);
    let (mut ours, mut theirs) = (Walk::new(&keys), Walk::new(&keys));
    let each = |limiter: &Limiter, key: &String| {
        drop(black_box(ready(limiter.check(allowed.charge(black_box(key.as_str()), 1)))));
    };
    let many = compare(ROUNDS, || each(&local, ours.step()), || each(&embedded, theirs.step()));
    // Each check looks a key up in the backlog, too. With one key both entries are in the cache.
    row("the same, of 20,000 keys", "ns", many, Bar::Open);

    let part = Limiter::with_resilience(Down, Resilience::default().instances(5));
    let share = compare(ROUNDS, || each(&part, &keys[0]), || each(&embedded, &keys[0]));
    row("the same, of one key and a fifth of its limit", "ns", share, Bar::AtMost(1.4));

    let rule = Rule::new(denied, move |_| Key::from(key));
    let mut service = RateLimitLayer::new(Limiter::new(instant()), rule).layer(Bare);
    let mut ask = || {
        let request = HttpRequest::get("/").body(Body::empty()).unwrap();
        black_box(ready(service.call(request)).is_ok());
    };
    let each = (0..31).map(|_| time(20_000, &mut ask)).fold(f64::MAX, f64::min);
    figure("denials through the layer, on one core", "M/s", 1e3 / each, Bar::AtLeast(1.0));
}

/// Returns the output of a future that may wait for a renewal on another thread.
#[inline(always)]
fn spin<F: Future>(future: F) -> F::Output {
    let mut future = pin!(future);
    loop {
        if let Poll::Ready(output) = future.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
            return output;
        }
        spin_loop();
    }
}

#[derive(Debug, Clone)]
struct Bare;

impl Service<HttpRequest<Body>> for Bare {
    type Response = Response<Body>;
    type Error = Infallible;
    type Future = std::future::Ready<Result<Response<Body>, Infallible>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, _: HttpRequest<Body>) -> Self::Future {
        std::future::ready(Ok(Response::new(Body::empty())))
    }
}
