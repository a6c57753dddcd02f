//! Checks a second over PostgreSQL and over Redis, in one run, in turns.
//!
//! `cargo bench -p plimsoll-postgres --all-features` starts servers of its own on free loopback ports.
//! PostgreSQL has the settings of Debian, and is also measured with commits that do not wait for the disk.

use std::time::{Duration, Instant};

use plimsoll::{Limiter, Policy, RedisStore, Resilience};
use plimsoll_postgres::{PostgresConfig, PostgresStore};
use plimsoll_testing::{policy, postgres::Postgres, servers::Server};

/// The number of checks that are in flight at the same time.
const TASKS: u64 = 64;

const ROUNDS: usize = 3;

fn main() {
    let seconds = std::env::var("SECONDS_PER_ROUND").ok().and_then(|text| text.parse().ok());
    let round = Duration::from_secs_f64(seconds.unwrap_or(2.0));
    let mut runtime = tokio::runtime::Builder::new_multi_thread();
    let runtime = runtime.worker_threads(2).enable_all().build().expect("a runtime");
    runtime.block_on(run(round));
}

async fn run(round: Duration) {
    let (redis, postgres) = (Server::start(), Postgres::start_with(&[]));
    let over = |config| async {
        let store = PostgresStore::connect(config).await.expect("a store");
        Limiter::with_resilience(store, Resilience::none())
    };
    let config = PostgresConfig::url(&postgres.url()).expect("a URL");
    let limiters = [
        ("Redis", {
            let store = RedisStore::connect(&redis.url()).await.expect("a store");
            Limiter::with_resilience(store, Resilience::none())
        }),
        ("PostgreSQL", over(config.clone()).await),
        ("PostgreSQL, async commit", over(config.table("other").commit_asynchronously()).await),
    ];
    println!("checks a second, {TASKS} in flight, the best of {ROUNDS} rounds");
    println!("{:<34}{:>14}{:>14}{:>26}", "", limiters[0].0, limiters[1].0, limiters[2].0);
    for (outcome, quota) in
        [("allowed", "1000000000/s token-bucket(1000000000)"), ("denied", "1/day fixed-window")]
    {
        for keys in [1, 1_000, 100_000] {
            let policy = policy(&format!("{outcome}-{keys}"), quota);
            let mut best = [0.0_f64; 3];
            for _ in 0..ROUNDS {
                for (best, (_, limiter)) in best.iter_mut().zip(&limiters) {
                    *best = best.max(checks_a_second(limiter, &policy, keys, round).await);
                }
            }
            let [redis, durable, asynchronous] = best;
            let row = format!("{outcome}, {keys} keys");
            println!("{row:<34}{redis:>14.0}{durable:>14.0}{asynchronous:>26.0}");
        }
    }
}

async fn checks_a_second(limiter: &Limiter, policy: &Policy, keys: u64, round: Duration) -> f64 {
    #[expect(clippy::disallowed_methods, reason = "a benchmark measures the time that passes")]
    let start = Instant::now();
    let tasks = (0..TASKS).map(|task| {
        let (limiter, policy) = (limiter.clone(), policy.clone());
        tokio::spawn(async move {
            let (mut checks, mut key) = (0_u64, task);
            while start.elapsed() < round {
                // Each task walks over all keys, with a stride that has no divisor in common with them.
                key = (key + 7_919) % keys;
                let decision = limiter.check(policy.charge(key, 1)).await.expect("an answer");
                std::hint::black_box(decision.is_allowed());
                checks += 1;
            }
            checks
        })
    });
    let mut checks = 0;
    for task in tasks.collect::<Vec<_>>() {
        checks += task.await.expect("no panic");
    }
    checks as f64 / start.elapsed().as_secs_f64()
}
