//! Runtimes without timers, and stores that are used from another runtime than their own.

use std::{
    pin::pin,
    task::{Context, Poll, Waker},
    thread,
    time::Duration,
};

use futures_util::FutureExt;
use plimsoll::{
    Decision, Limiter, OnFailure, Policy, RedisStore, Resilience, error::ErrorKind,
    redis::RedisConfig, store::Source,
};
use plimsoll_testing::servers::{PATIENCE, Server};
use tokio::{
    runtime::{Builder, Runtime},
    time::Instant,
};

use crate::{patient, policy};

fn current_thread() -> Runtime {
    Builder::new_current_thread().enable_all().build().expect("a runtime")
}

/// Creates a store outside of a runtime.
fn lazy(server: &Server) -> RedisStore {
    let connected =
        RedisStore::connect_with(RedisConfig::url(server.url()).lazy(true)).now_or_never();
    connected.expect("it does not wait").expect("a URL")
}

fn without_time() -> Runtime {
    Builder::new_current_thread().enable_io().build().expect("a runtime")
}

#[test]
fn connecting_without_timers_is_an_error() {
    let server = Server::start();
    let error = without_time().block_on(RedisStore::connect(&server.url())).expect_err("no time");
    assert!(error.to_string().contains("enable_all"), "{error}");
    assert_eq!(error.kind(), ErrorKind::Unavailable);
}

#[test]
fn a_check_without_timers_fails_or_falls_back() {
    let server = Server::start();
    let maker = Runtime::new().expect("a runtime");
    let connected = maker.block_on(RedisStore::connect(&server.url())).expect("a store");
    let lazy = lazy(&server);
    let policy = policy("p", "100/h");
    for store in [connected, lazy] {
        let runtime = without_time();
        let bare = Limiter::with_resilience(store.clone(), Resilience::none());
        let error = runtime.block_on(bare.check(policy.charge("a", 1))).expect_err("no time");
        assert!(error.to_string().contains("enable_all"), "{error}");
        let limiter = Limiter::new(store.clone());
        let deny = policy.charge("a", 1).with_on_failure(OnFailure::Deny);
        let error = runtime.block_on(limiter.check(deny)).expect_err("no time");
        assert!(error.to_string().contains("enable_all"), "{error}");
        // Enough of them to open the breaker.
        for _ in 0..40 {
            let decision = runtime.block_on(limiter.check(policy.charge("a", 1)));
            assert_eq!(decision.expect("it falls back").source(), Source::Fallback);
        }
        // Where there are timers, it recovers.
        maker.block_on(assert_recovers(&limiter, &policy));
    }
}

#[test]
fn waiting_without_timers_is_an_error() {
    let (limiter, policy) = (Limiter::in_memory(), policy("p", "1/h"));
    let wait = || limiter.until_ready(policy.charge("a", 1), Duration::from_secs(7_200));
    let first = without_time().block_on(wait()).expect("no wait is needed");
    assert!(matches!(first, Decision::Allowed(_)));
    let error = without_time().block_on(wait()).expect_err("no time");
    assert_eq!(error.kind(), ErrorKind::Invalid);
    assert!(error.to_string().contains("enable_time"), "{error}");
    // Nor is there any outside of a runtime.
    let error = poll_once(wait()).expect_err("no runtime");
    assert!(error.to_string().contains("enable_time"), "{error}");
}

/// Polls a future that does not have to wait.
fn poll_once<F: Future>(future: F) -> F::Output {
    match pin!(future).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(output) => output,
        Poll::Pending => panic!("it waits"),
    }
}

/// Fails unless the store decides within 30 s.
async fn assert_recovers(limiter: &Limiter, policy: &Policy) {
    let start = Instant::now();
    loop {
        let decision = limiter.check(policy.charge("b", 1)).await.expect("decided");
        if decision.source() == Source::Shared {
            return;
        }
        assert!(start.elapsed() < PATIENCE, "the store is dead");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

#[test]
fn a_store_survives_the_runtime_that_made_it() {
    let server = Server::start();
    for lazy in [false, true] {
        let maker = Runtime::new().expect("a runtime");
        let store = maker.block_on(async {
            match lazy {
                false => RedisStore::connect(&server.url()).await,
                true => RedisStore::connect_with(RedisConfig::url(server.url()).lazy(true)).await,
            }
        });
        let (limiter, policy) = (Limiter::new(store.expect("a store")), policy("p", "10000/h"));
        let user = current_thread();
        // Both live.
        user.block_on(assert_recovers(&limiter, &policy));
        drop(maker);
        user.block_on(assert_recovers(&limiter, &policy));
    }
}

/// A current-thread runtime runs nothing outside of `block_on`.
#[test]
fn a_store_survives_a_runtime_that_stands_still() {
    let server = Server::start();
    let maker = current_thread();
    let store = maker.block_on(RedisStore::connect(&server.url())).expect("a store");
    let (limiter, policy) = (Limiter::new(store), policy("p", "10000/h"));
    current_thread().block_on(assert_recovers(&limiter, &policy));
    drop(maker);
}

/// A store that is being started in a runtime that stands still starts elsewhere when that one ends.
#[test]
fn a_lazy_store_starts_elsewhere_when_its_runtime_ends() {
    let server = Server::start();
    let maker = current_thread();
    let store = maker.block_on(async { lazy(&server) });
    let (limiter, policy) = (Limiter::new(store), policy("p", "10000/h"));
    drop(maker);
    current_thread().block_on(assert_recovers(&limiter, &policy));
}

/// A check that stops waiting in the queue leaves the task of its batch in its runtime, where nothing polls
/// it. The other checks do not depend on that task.
#[test]
fn checks_survive_a_batch_in_a_runtime_that_stands_still() {
    let server = Server::start();
    let (user, other) = (current_thread(), current_thread());
    let config = RedisConfig::url(server.url()).with_settings(patient());
    let store = user.block_on(RedisStore::connect_with(config)).expect("a store");
    let limiter = Limiter::with_resilience(store, Resilience::none());
    let policy = policy("p", "10000/h");
    // Sent, and then not polled: it is in flight for as long as it is kept.
    let mut hangs = Box::pin(limiter.check(policy.charge("a", 1)));
    user.block_on(async { assert!(futures_util::poll!(&mut hangs).is_pending()) });
    let batch_of = |key: &'static str| {
        let mut queued = Box::pin(limiter.check(policy.charge(key, 1)));
        other.block_on(async { assert!(futures_util::poll!(&mut queued).is_pending()) });
        queued
    };
    let check = |key: &'static str| {
        user.block_on(async {
            let check = limiter.check(policy.charge(key, 1));
            tokio::time::timeout(PATIENCE / 3, check).await
        })
    };
    drop(batch_of("b"));
    assert!(check("c").expect("it is sent").expect("an answer").is_allowed());
    // Here the check still waits, so its batch does. After a while, others do not count on it.
    let queued = batch_of("d");
    thread::sleep(Duration::from_millis(25));
    assert!(check("e").expect("it is sent").expect("an answer").is_allowed());
    assert!(user.block_on(queued).expect("an answer").is_allowed());
    assert!(user.block_on(hangs).expect("an answer").is_allowed());
}

/// Runtimes of one thread each, as some servers have them, take turns and share a store.
#[test]
fn threads_with_a_runtime_each_share_a_store() {
    let server = Server::start();
    let (limiter, policy) = (Limiter::new(lazy(&server)), policy("p", "10000/h"));
    thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| current_thread().block_on(assert_recovers(&limiter, &policy)));
        }
    });
    // Their runtimes have ended.
    current_thread().block_on(assert_recovers(&limiter, &policy));
}
