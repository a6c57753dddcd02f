//! Leased quotas over real servers: the commands that they cost, and the units that they admit.
//!
//! The tests run on real time, with leases that outlast them.

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering::Relaxed},
};

use futures_util::future::join_all;
use plimsoll::{
    Decision, Limiter, Policy, RedisStore, Resilience, redis::RedisConfig, store::Source,
};
use plimsoll_testing::{algorithms::each_quota, servers::Server};

use crate::{patient, policy};

/// Returns a limiter with leases, whose deadline a busy machine does not reach.
fn patient_limiter(store: RedisStore) -> Limiter {
    Limiter::with_resilience(
        store,
        Resilience::default().deadline(std::time::Duration::from_secs(30)),
    )
}

async fn limiter(server: &Server) -> Limiter {
    patient_limiter(
        RedisStore::connect_with(RedisConfig::url(server.url()).with_settings(patient()))
            .await
            .expect("a store"),
    )
}

/// The number of checks, renewals and refunds that a server has executed.
fn commands(server: &Server) -> u64 {
    let info = server.info("commandstats", "cmdstat_evalsha");
    let calls = info.split("calls=").nth(1).and_then(|it| it.split(',').next());
    calls.and_then(|it| it.parse().ok()).unwrap_or(0)
}

/// Runs `tasks` tasks that check until they are denied, for at most `checks` times each. Returns the
/// number of admitted checks.
async fn spend(limiter: &Limiter, policy: &Policy, tasks: usize, checks: usize) -> u64 {
    let admitted = Arc::new(AtomicU64::new(0));
    let tasks = (0..tasks).map(|_| {
        let (limiter, policy, admitted) = (limiter.clone(), policy.clone(), Arc::clone(&admitted));
        tokio::spawn(async move {
            for _ in 0..checks {
                match limiter.check(policy.charge("everybody", 1)).await.expect("an answer") {
                    Decision::Allowed(_) => admitted.fetch_add(1, Relaxed),
                    Decision::Denied(_) => break,
                };
            }
        })
    });
    join_all(tasks.collect::<Vec<_>>()).await.into_iter().for_each(|it| it.expect("no panic"));
    admitted.load(Relaxed)
}

async fn remaining(limiter: &Limiter, policy: &Policy) -> u64 {
    let decision = limiter.peek(policy.charge("everybody", 1)).await.expect("an answer");
    decision.binding().expect("one charge").standing().remaining
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hot_key_costs_few_commands() {
    let server = Server::start();
    let limiter = limiter(&server).await;
    for (name, quota) in [
        ("bucket", "100000000/h token-bucket(10000000) leased(60s)"),
        ("window", "100000000/h fixed-window leased(60s)"),
        ("counter", "100000000/h sliding-counter leased(60s)"),
    ] {
        let policy = policy(name, quota);
        let before = commands(&server);
        assert_eq!(spend(&limiter, &policy, 64, 1_000).await, 64_000);
        let commands = commands(&server) - before;
        assert!(commands < 300, "{quota}: {commands} commands for 64,000 checks");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn four_limiters_share_exactly_the_limit() {
    let server = Server::start();
    for (quota, name) in each_quota("1000/300day", 10, 1_000) {
        let policy = policy(name, &format!("{quota} leased(60s)"));
        let mut limiters = Vec::new();
        for _ in 0..4 {
            limiters.push(limiter(&server).await);
        }
        let mut admitted = 0;
        // Units that one limiter holds when the others are denied are used in the next round.
        for _ in 0..20 {
            let spends = limiters.iter().map(|it| spend(it, &policy, 8, 1_000));
            admitted += join_all(spends).await.iter().sum::<u64>();
        }
        assert!((970..=1000).contains(&admitted), "{quota}: {admitted} admitted");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn close_gives_everything_back() {
    let server = Server::start();
    let stranger = Limiter::with_resilience(
        RedisStore::connect_with(RedisConfig::url(server.url()).with_settings(patient()))
            .await
            .expect("a store"),
        Resilience::none(),
    );
    // No unit returns during the test.
    for (quota, _) in each_quota("10000/300day", 10, 10_000) {
        let policy = policy("closed", &format!("{quota} leased(60s)"));
        let limiter = limiter(&server).await;
        let admitted = spend(&limiter, &policy, 8, 100).await;
        assert_eq!(admitted, 800);
        assert!(limiter.status().leased_units > 0, "{quota}");
        let limit = remaining(&limiter, &policy).await + admitted;
        limiter.close().await.expect("an answer");
        assert_eq!(limiter.status().leased_units, 0);
        assert_eq!(remaining(&stranger, &policy).await, limit - admitted, "{quota}");
        let decision = limiter.check(policy.charge("everybody", 1)).await.expect("an answer");
        assert_eq!(decision.source(), Source::Shared);
    }
}
