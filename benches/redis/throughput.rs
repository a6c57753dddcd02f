//! Checks per second of 256 tasks on 1000 keys and on one: the store, also with a call for each
//! check, a raw EVALSHA of the same script over one multiplexed connection, and bb8's exclusive
//! checkout.

use std::{collections::BTreeMap, future::Future, sync::Arc, time::Duration};

use bb8_redis::RedisConnectionManager;
use plimsoll::{Decision, Key, Limiter, Policy, RedisStore, redis::RedisConfig};
use redis::{Cmd, Script, Value};
use tokio::time::Instant;

use crate::server::Server;

const TASKS: usize = 256;

/// The script, as `src/redis/script.rs` joins it.
pub(crate) const SCRIPT: &str = concat!(
    include_str!("../../lua/prelude.lua"),
    include_str!("../../lua/self_test.lua"),
    "decide = function(operation, now, charge, admitted, again)\nlocal block_header\nwhile true do\n",
    include_str!("../../lua/charge.lua"),
    "if algorithm == 1 then\n",
    include_str!("../../lua/sliding_log.lua"),
    "end\nif algorithm == 2 then\n",
    include_str!("../../lua/sliding_buckets.lua"),
    "end\nif algorithm == 3 then\n",
    include_str!("../../lua/sliding_counter.lua"),
    "end\nif algorithm == 4 then\n",
    include_str!("../../lua/token_bucket.lua"),
    "end\nif algorithm == 5 then\n",
    include_str!("../../lua/fixed_window.lua"),
    "end\n",
    include_str!("../../lua/periods.lua"),
    include_str!("../../lua/ring_find.lua"),
    include_str!("../../lua/release.lua"),
    include_str!("../../lua/ring.lua"),
    include_str!("../../lua/block.lua"),
    include_str!("../../lua/reset.lua"),
    include_str!("../../lua/write.lua"),
    include_str!("../../lua/answer.lua"),
    "end\nend\n",
    include_str!("../../lua/checks.lua"),
);

/// The figures of each round.
#[derive(Default)]
pub(crate) struct Measurements {
    /// Checks per second.
    pub(crate) rates: Vec<f64>,
    /// The checks of the slowest task in relation to the mean.
    slowest: Vec<f64>,
    /// In milliseconds.
    p99: Vec<f64>,
}

/// Runs `work` on random keys in `tasks` tasks, each in a row.
pub(crate) async fn round<F, W>(
    tasks: usize,
    seconds: f64,
    keys: u64,
    measurements: &mut Measurements,
    work: W,
) where
    W: Fn(u64) -> F + Clone + Send + Sync + 'static,
    F: Future<Output = ()> + Send,
{
    let end = Instant::now() + Duration::from_secs_f64(seconds);
    let spawned: Vec<_> = (0..tasks as u64)
        .map(|task| {
            let work = work.clone();
            tokio::spawn(async move {
                let mut times = Vec::with_capacity(4096);
                let mut key = task * 7919;
                loop {
                    let start = Instant::now();
                    if start >= end {
                        return times;
                    }
                    key = key.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                    work((key >> 33) % keys).await;
                    times.push(start.elapsed().as_secs_f64());
                }
            })
        })
        .collect();
    let mut all = Vec::new();
    let mut least = usize::MAX;
    for task in spawned {
        let times = task.await.expect("no panic");
        least = least.min(times.len());
        all.extend(times);
    }
    all.sort_unstable_by(f64::total_cmp);
    measurements.rates.push(all.len() as f64 / seconds);
    measurements.slowest.push(least as f64 * tasks as f64 / all.len() as f64);
    measurements.p99.push(all[all.len() * 99 / 100] * 1e3);
}

pub(crate) fn median(values: &[f64]) -> f64 {
    quantile(values, 0.5)
}

pub(crate) fn quantile(values: &[f64], at: f64) -> f64 {
    let mut values = values.to_vec();
    values.sort_unstable_by(f64::total_cmp);
    values[((values.len() - 1) as f64 * at).round() as usize]
}

/// A charge of one unit as the script reads it, the only one and so the last of its check.
pub(crate) fn packed_charge(algorithm: u8, limit: f64, window: f64, parameter: f64) -> Vec<u8> {
    let mut line = vec![algorithm, 16];
    for number in [limit, window, parameter, 1.0, 1.0] {
        line.extend(number.to_le_bytes());
    }
    line
}

pub(crate) async fn run(seconds: f64) {
    on_keys(seconds, 1_000).await;
    on_keys(seconds, 1).await;
}

async fn on_keys(seconds: f64, keys: u64) {
    let server = Server::start();
    let policy = Policy::new("eightlet", "1000000/s token-bucket(1000000)");
    let policy = Arc::new(policy.expect("valid"));
    let mut results: BTreeMap<String, Measurements> = BTreeMap::new();
    let mut stores = Vec::new();
    for connections in [1, 2, 4] {
        let config = RedisConfig::default().connections(connections);
        let each = config.clone().batching(false);
        for (how, config) in [("", config), (", a call each", each)] {
            let store =
                RedisStore::connect_with(RedisConfig::url(server.url()).with_settings(config))
                    .await
                    .expect("a store");
            stores.push((
                format!("url, {connections} connections{how}"),
                Limiter::with_resilience(store, plimsoll::Resilience::none()),
            ));
        }
    }
    let manager = RedisConnectionManager::new(server.url()).expect("valid");
    let pool = bb8::Pool::builder().max_size(2).build(manager).await.expect("a pool");
    let store = RedisStore::connect_with(RedisConfig::pool(pool)).await.expect("a store");
    let limiter = Limiter::with_resilience(store, plimsoll::Resilience::none());
    stores.push(("as bb8's pool connects".into(), limiter));
    let sha: Arc<str> = Script::new(SCRIPT).get_hash().into();
    let line: Arc<[u8]> = packed_charge(4, 1e6, 1e6, 1e6).into();
    let names: Arc<Vec<String>> =
        Arc::new((0..keys).map(|key| format!("raw:{{{key:022}}}:eightlet:t1")).collect());
    let command = move |sha: &str, line: &[u8], name: &str| {
        let mut command = Cmd::new();
        command.arg("EVALSHA").arg(sha).arg(1).arg(name).arg("a").arg(line);
        command
    };
    let options = redis::AsyncConnectionConfig::new().set_response_timeout(None);
    let client = server.client();
    let raw = client.get_multiplexed_async_connection_with_config(&options);
    let raw = raw.await.expect("a connection");
    let manager = RedisConnectionManager::new(server.url()).expect("valid");
    let exclusive = bb8::Pool::builder().max_size(10).build(manager).await.expect("a pool");
    // The first check of each loads what it needs.
    for (_, limiter) in &stores {
        let _ = limiter.check(policy.charge(0, 1)).await.expect("an answer");
    }
    for _ in 0..7 {
        for (name, limiter) in &stores {
            let (limiter, policy) = (limiter.clone(), Arc::clone(&policy));
            round(TASKS, seconds, keys, results.entry(name.clone()).or_default(), move |key| {
                let (limiter, policy) = (limiter.clone(), Arc::clone(&policy));
                async move {
                    let decision = limiter.check(policy.charge(Key::from(key), 1)).await;
                    assert!(matches!(decision.expect("an answer"), Decision::Allowed(_)));
                }
            })
            .await;
        }
        let (raw, sha, line, names) =
            (raw.clone(), Arc::clone(&sha), Arc::clone(&line), Arc::clone(&names));
        let (sha2, line2, names2) = (Arc::clone(&sha), Arc::clone(&line), Arc::clone(&names));
        round(TASKS, seconds, keys, results.entry("raw EVALSHA".into()).or_default(), move |key| {
            let (mut raw, sha, line, names) =
                (raw.clone(), Arc::clone(&sha), Arc::clone(&line), Arc::clone(&names));
            async move {
                let command = command(&sha, &line, &names[key as usize]);
                let _: Value = command.query_async(&mut raw).await.expect("an answer");
            }
        })
        .await;
        let pool = exclusive.clone();
        round(
            TASKS,
            seconds,
            keys,
            results.entry("bb8 exclusive checkout".into()).or_default(),
            move |key| {
                let (pool, sha, line, names) =
                    (pool.clone(), Arc::clone(&sha2), Arc::clone(&line2), Arc::clone(&names2));
                async move {
                    let command = command(&sha, &line, &names[key as usize]);
                    let mut connection = pool.get().await.expect("a connection");
                    let _: Value = command.query_async(&mut *connection).await.expect("an answer");
                }
            },
        )
        .await;
    }
    let raw = &results["raw EVALSHA"];
    let (raw_rate, raw_p99) = (median(&raw.rates), median(&raw.p99));
    let exclusive = median(&results["bb8 exclusive checkout"].rates);
    println!("{TASKS} tasks, {keys} keys, one charge; medians of 7 interleaved rounds");
    println!(
        "{:<34} {:>9} {:>7} {:>8} {:>8} {:>9} {:>8}",
        "", "checks/s", "x raw", "x bb8", "p99 ms", "x raw p99", "slowest"
    );
    for (name, result) in &results {
        let (rate, p99) = (median(&result.rates), median(&result.p99));
        println!(
            "{name:<34} {rate:>9.0} {:>7.2} {:>8.2} {p99:>8.2} {:>9.2} {:>8.2}",
            rate / raw_rate,
            rate / exclusive,
            p99 / raw_p99,
            median(&result.slowest),
        );
    }
}
