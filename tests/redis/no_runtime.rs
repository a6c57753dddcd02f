//! Checks that are polled outside of a tokio runtime.

use std::{
    pin::pin,
    sync::Arc,
    task::{Context, Poll, Wake, Waker},
    thread::{self, Thread},
};

use futures_util::future::join_all;
use plimsoll::{Limiter, RedisStore, Resilience, error::Effect, redis::RedisConfig, store::Source};
use plimsoll_testing::servers::{Cluster, Server};

use crate::policy;

struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

/// An executor without timers.
fn block_on<F: Future>(future: F) -> F::Output {
    let waker = Waker::from(Arc::new(Unpark(thread::current())));
    let mut future = pin!(future);
    loop {
        match future.as_mut().poll(&mut Context::from_waker(&waker)) {
            Poll::Ready(output) => return output,
            Poll::Pending => thread::park(),
        }
    }
}

/// The connections live in a runtime, and the checks are polled by another executor.
#[test]
fn a_check_outside_of_a_runtime_fails_without_effect() {
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    let server = Server::start();
    let store = runtime.block_on(RedisStore::connect(&server.url())).expect("a store");
    let cluster = Cluster::start();
    let sharded = runtime
        .block_on(RedisStore::connect_with(RedisConfig::cluster(cluster.urls())))
        .expect("a store");
    let policy = policy("p", "100/h");
    for store in [store, sharded] {
        let limiter = Limiter::with_resilience(store.clone(), Resilience::none());
        let checks = (0..20).map(|_| limiter.check(policy.charge("alice", 1)));
        for decision in block_on(join_all(checks)) {
            let error = decision.expect_err("there are no timers");
            assert!(error.is_unavailable() && error.effect() == Effect::None, "{error}");
        }
        let several = || (0..8_u64).map(|key| policy.charge(key, 1)).collect::<Vec<_>>();
        let error = block_on(limiter.check(several())).expect_err("there are no timers");
        assert!(error.is_unavailable() && error.effect() == Effect::None, "{error}");

        let limiter = Limiter::with_resilience(store, Resilience::default());
        for _ in 0..40 {
            let decision = block_on(limiter.check(several())).expect("it falls back");
            assert_eq!(decision.source(), Source::Fallback);
        }
    }
}
