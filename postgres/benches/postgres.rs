//! Checks a second over PostgreSQL and over Redis, in one run, in turns.
//!
//! `cargo bench -p plimsoll-postgres --all-features` starts servers of its own on free loopback ports.
//! PostgreSQL has the settings of Debian, and is also measured with commits that do not wait for the disk.
//! The stores have all keys of a row before it is measured.

use std::time::{Duration, Instant};

use plimsoll::{
    Limiter, Policy, RedisStore, Resilience,
    clock::{Clock, SystemClock},
    policy::Charges,
    store::{Request, Source, StateChange, Step},
};
use plimsoll_postgres::{PostgresConfig, PostgresStore};
use plimsoll_testing::{policy, postgres::Postgres, servers::Server};
use tokio_postgres::{Client, NoTls};

/// The number of checks that are in flight at the same time.
const TASKS: u64 = 64;

const ROUNDS: usize = 3;

/// The table of the store whose commits wait for the disk, and of the other one.
const TABLES: [&str; 2] = ["durable", "asynchronous"];

const SECRET: [u64; 2] = [1, 2];

/// The number of rows that are inserted at a time.
const ROWS: u64 = 10_000;

fn main() {
    let seconds = std::env::var("SECONDS_PER_ROUND").ok().and_then(|text| text.parse().ok());
    let round = Duration::from_secs_f64(seconds.unwrap_or(1.0));
    let mut runtime = tokio::runtime::Builder::new_multi_thread();
    let runtime = runtime.worker_threads(2).enable_all().build().expect("a runtime");
    runtime.block_on(run(round));
}

async fn run(round: Duration) {
    let server = Server::start();
    let postgres = Postgres::start_with(&[]);
    let config = PostgresConfig::url(&postgres.url()).expect("a URL").secret(SECRET);
    let (client, driver) = tokio_postgres::connect(&postgres.url(), NoTls).await.expect("a server");
    tokio::spawn(driver);
    let store = RedisStore::connect(&server.url()).await.expect("a store");
    let redis = Limiter::with_resilience(store, Resilience::none());
    let durable = over(config.clone().table(TABLES[0])).await;
    let asynchronous = over(config.table(TABLES[1]).commit_asynchronously()).await;
    println!("checks a second, {TASKS} in flight, the best of {ROUNDS} rounds");
    println!("{:<34}{:>14}{:>14}{:>26}", "", "Redis", "PostgreSQL", "PostgreSQL, async commit");
    for (outcome, quota) in
        [("allowed", "1000000000/s token-bucket(1000000000)"), ("denied", "1/day fixed-window")]
    {
        for keys in [1, 1_000, 100_000, 1_000_000] {
            let policy = policy(&format!("{outcome}-{keys}"), quota);
            charge_all(&redis, &policy, keys).await;
            insert_all(&client, &policy, keys).await;
            let mut best = [0.0_f64; 3];
            for _ in 0..ROUNDS {
                for (best, limiter) in best.iter_mut().zip([&redis, &durable, &asynchronous]) {
                    let checks = checks(limiter, &policy, keys, round, outcome == "allowed").await;
                    *best = best.max(checks);
                }
            }
            let [redis, durable, asynchronous] = best;
            let row = format!("{outcome}, {keys} keys");
            println!("{row:<34}{redis:>14.0}{durable:>14.0}{asynchronous:>26.0}");
        }
    }
}

async fn over(config: PostgresConfig) -> Limiter {
    let store = PostgresStore::connect(config).await.expect("a store");
    Limiter::with_resilience(store, Resilience::none())
}

/// Charges each key once, in checks of as many keys as a check may have.
async fn charge_all(limiter: &Limiter, policy: &Policy, keys: u64) {
    let tasks = (0..TASKS).map(|task| {
        let limiter = limiter.clone();
        let policy = policy.clone();
        tokio::spawn(async move {
            let mut own = (task..keys).step_by(TASKS as usize).peekable();
            while own.peek().is_some() {
                let some = own.by_ref().take(Charges::MAX);
                let charges: Charges<'_> = some.map(|key| policy.charge(key, 1)).collect();
                let decision = limiter.check(charges).await.expect("an answer");
                assert!(decision.is_allowed(), "the keys are new");
            }
        })
    });
    for task in tasks.collect::<Vec<_>>() {
        task.await.expect("no panic");
    }
}

/// Inserts the states of keys that were charged once into both tables, as the store would write them.
async fn insert_all(client: &Client, policy: &Policy, keys: u64) {
    let now = SystemClock::default().now();
    for first in (0..keys).step_by(ROWS as usize) {
        let changes = (first..keys.min(first + ROWS)).flat_map(|key| {
            let charges = [policy.charge(key, 1)];
            let step = Step::new(Request::Acquire(&charges), Source::Shared, SECRET);
            step.run(now, |_| None).expect("a reply").1
        });
        let changes: Vec<StateChange> = changes.collect();
        let ids: Vec<&[u8]> = changes.iter().map(|row| row.id.as_slice()).collect();
        let states: Vec<&[u8]> = changes.iter().map(|row| row.bytes.as_slice()).collect();
        let ten_minutes = changes.iter().map(|row| row.expires_at.as_micros() / 600_000_000 + 2);
        let kept: Vec<i32> = ten_minutes.map(|it| it.try_into().expect("soon")).collect();
        for table in TABLES {
            let insert = format!(
                "INSERT INTO {table} \
                 SELECT * FROM unnest($1::bytea[], $2::bytea[], $3::integer[])"
            );
            client.execute(&insert, &[&ids, &states, &kept]).await.expect("new rows");
        }
    }
    client.batch_execute("VACUUM ANALYZE").await.expect("done");
    client.batch_execute("CHECKPOINT").await.expect("done");
}

/// Returns the number of checks a second, all of which are admitted or all denied.
async fn checks(
    limiter: &Limiter,
    policy: &Policy,
    keys: u64,
    round: Duration,
    are_allowed: bool,
) -> f64 {
    #[expect(clippy::disallowed_methods, reason = "a benchmark measures the time that passes")]
    let start = Instant::now();
    let tasks = (0..TASKS).map(|task| {
        let limiter = limiter.clone();
        let policy = policy.clone();
        tokio::spawn(async move {
            let mut checks = 0_u64;
            let mut key = task;
            while start.elapsed() < round {
                // Each task walks over all keys, with a stride that has no divisor in common with them.
                key = (key + 7_919) % keys;
                let decision = limiter.check(policy.charge(key, 1)).await.expect("an answer");
                assert_eq!(decision.is_allowed(), are_allowed);
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
