//! The longest wait for a Redis that is frozen.

use std::{process::Command, time::Duration};

use tokio::time::Instant;
use tollgate::{
    Limiter,
    store::{RedisStore, Resilience, Source},
};

use crate::{
    policy,
    servers::{Server, patient},
    support::calm::on_a_calm_machine,
};

fn signal(signal: &str, server: &Server) {
    let pid = server.pid().to_string();
    assert!(Command::new("kill").args([signal, &pid]).status().expect("kill").success());
}

/// Without a breaker, each check waits until the deadline.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_check_waits_until_the_deadline_of_50_ms() {
    on_a_calm_machine(async || {
        let server = Server::start();
        let store = RedisStore::connect_with(&server.url(), patient()).await.expect("a store");
        let limiter = Limiter::with(store, Resilience::default().without_breaker());
        let policy = policy("p", "1000/h");
        let _ = limiter.check(policy.charge("alice", 1)).await.expect("decided");
        signal("-STOP", &server);
        let mut waits = Vec::new();
        for _ in 0..100 {
            let start = Instant::now();
            let decision = limiter.check(policy.charge("alice", 1)).await.expect("it falls back");
            assert_eq!(decision.source(), Source::Fallback);
            waits.push(start.elapsed());
        }
        signal("-CONT", &server);
        waits.sort_unstable();
        let (median, p99, longest) = (waits[49], waits[98], waits[99]);
        eprintln!("measured: Redis frozen: median {median:?}, p99 {p99:?}, max {longest:?}");
        if p99 > Duration::from_millis(55) {
            return Err(format!("p99 {p99:?}"));
        }
        Ok(())
    })
    .await;
}
