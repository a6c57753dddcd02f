//! Leased keys beside a raw EVALSHA of the same script and beside the same policy without a lease.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::Duration,
};

use plimsoll::{Limiter, Policy, RedisStore, policy::Charges};
use redis::{Cmd, Script, Value, aio::MultiplexedConnection};
use tokio::{
    task::{JoinSet, yield_now},
    time::Instant,
};

use crate::{
    server::Server,
    throughput::{SCRIPT, median, packed_charge},
};

const TASKS: usize = 256;
const ROUNDS: usize = 7;
/// More than any machine checks.
const ENDLESS: &str = "10000000000/min token-bucket(10000000000)";
/// The number of checks after which a task lets others run. A check from stock does not wait, so it
/// would not do so by itself.
const CHECKS_PER_TURN: usize = 64;

pub(crate) async fn run(seconds: f64) {
    println!("leases; medians of interleaved rounds");
    println!("{:<52} {:>9} {:>9} {:>6} {:>7}", "", "ours", "theirs", "ratio", "bar");
    for (keys, bar) in [(1, 20.0), (1_000, 10.0)] {
        hot(seconds, keys, bar).await;
    }
    commands(seconds).await;
    one_at_a_time().await;
    instances().await;
}

/// Commands for a thousand checks if nothing limits the rate of the checks, with a lease and without.
async fn commands(seconds: f64) {
    let server = Server::start();
    let limiter = limiter(&server).await;
    for keys in [1_000, 10_000] {
        let mut counts = [(); 2].map(|()| Vec::new());
        let policies = [("leased", " leased(500ms)"), ("direct", "")];
        for _ in 0..ROUNDS {
            for ((name, lease), counts) in policies.iter().zip(&mut counts) {
                let policy = Arc::new(policy(name, &format!("{ENDLESS}{lease}")));
                let checks = {
                    let limiter = limiter.clone();
                    move |key: u64| {
                        let (limiter, policy) = (limiter.clone(), Arc::clone(&policy));
                        async move {
                            let decision = limiter.check(policy.charge(key, 1)).await;
                            assert!(decision.expect("an answer").is_allowed());
                        }
                    }
                };
                // The keys become hot.
                rate(seconds / 2.0, keys, checks.clone()).await;
                let (_, before) = server.evalsha();
                let checks = rate(seconds, keys, checks).await * seconds;
                counts.push((server.evalsha().1 - before) / checks * 1e3);
            }
        }
        let [leased, direct] = &counts;
        let ratios: Vec<_> =
            leased.iter().zip(direct).map(|(ours, theirs)| ours / theirs).collect();
        let what = format!("commands/1000 checks, {keys} keys, leased / direct");
        row(&what, median(leased), median(direct), median(&ratios), "<= 1");
    }
}

fn row(what: &str, ours: f64, theirs: f64, ratio: f64, bar: &str) {
    println!("{what:<52} {ours:>9.1} {theirs:>9.1} {ratio:>6.2} {bar:>7}");
}

fn policy(name: &str, quota: &str) -> Policy {
    Policy::new(name, quota).expect("valid")
}

async fn limiter(server: &Server) -> Limiter {
    Limiter::new(RedisStore::connect(&server.url()).await.expect("a store"))
}

/// Checks per second of keys that are all hot, and the commands that Redis executes meanwhile.
async fn hot(seconds: f64, keys: u64, bar: f64) {
    let server = Server::start();
    let policy = Arc::new(policy("leased", &format!("{ENDLESS} leased(500ms)")));
    let limiter = limiter(&server).await;
    let options = redis::AsyncConnectionConfig::new().set_response_timeout(None);
    let client = server.client();
    let raw = client.get_multiplexed_async_connection_with_config(&options).await;
    let mut raw = raw.expect("a connection");
    let script = Script::new(SCRIPT);
    script.prepare_invoke().load_async(&mut raw).await.expect("loaded");
    for key in 0..keys {
        assert!(limiter.check(policy.charge(key, 1)).await.expect("an answer").is_allowed());
    }
    let checks = {
        let (limiter, policy) = (limiter.clone(), Arc::clone(&policy));
        move |key: u64| {
            let (limiter, policy) = (limiter.clone(), Arc::clone(&policy));
            async move {
                let decision = limiter.check(policy.charge(key, 1)).await;
                assert!(decision.expect("an answer").is_allowed());
            }
        }
    };
    let script: Arc<str> = script.get_hash().into();
    let calls = move |key: u64| {
        let (mut raw, script) = (raw.clone(), Arc::clone(&script));
        async move { evalsha(&mut raw, &script, key).await }
    };
    let (mut ours, mut theirs, mut commands) = (Vec::new(), Vec::new(), Vec::new());
    // The keys become hot.
    rate(seconds, keys, checks.clone()).await;
    for _ in 0..ROUNDS {
        let (_, before) = server.evalsha();
        ours.push(rate(seconds, keys, checks.clone()).await);
        commands.push((server.evalsha().1 - before) / seconds);
        theirs.push(rate(seconds, keys, calls.clone()).await);
    }
    let ratios: Vec<_> = ours.iter().zip(&theirs).map(|(ours, theirs)| ours / theirs).collect();
    let what = format!("{TASKS} tasks, {keys} leased keys, 1000 checks/s; raw EVALSHA");
    let (ours, theirs) = (median(&ours) / 1e3, median(&theirs) / 1e3);
    row(&what, ours, theirs, median(&ratios), &format!(">= {bar}"));
    let bar = if keys == 1 { "<= 50" } else { "" };
    println!("{:<52} {:>9.1} {:>9} {:>6} {bar:>7}", "  its commands/s", median(&commands), "", "");
}

/// Returns the number of calls of `work` in one second, in [`TASKS`] tasks.
async fn rate<F, W>(seconds: f64, keys: u64, work: W) -> f64
where
    W: Fn(u64) -> F + Clone + Send + Sync + 'static,
    F: Future<Output = ()> + Send,
{
    let end = Instant::now() + Duration::from_secs_f64(seconds);
    let mut tasks: JoinSet<u64> = (0..TASKS as u64)
        .map(|task| {
            let work = work.clone();
            async move {
                let (mut key, mut calls) = (task * 7919, 0);
                while Instant::now() < end {
                    for _ in 0..CHECKS_PER_TURN {
                        key = key.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                        work((key >> 33) % keys).await;
                        calls += 1;
                    }
                    yield_now().await;
                }
                calls
            }
        })
        .collect();
    let mut calls = 0;
    while let Some(task) = tasks.join_next().await {
        calls += task.expect("no panic");
    }
    calls as f64 / seconds
}

async fn evalsha(raw: &mut MultiplexedConnection, script: &str, key: u64) {
    let mut command = Cmd::new();
    let line = packed_charge(4, 1e9, 1e6, 1e9);
    let name = format!("raw:{{{key:022}}}:leased:t1");
    command.arg("EVALSHA").arg(script).arg(1).arg(name).arg("a").arg(line);
    let _: Value = command.query_async(raw).await.expect("an answer");
}

/// The latency of checks in a row of cold keys.
async fn one_at_a_time() {
    const ROUNDS: usize = 41;
    const CHECKS: u64 = 500;
    let server = Server::start();
    let limiter = limiter(&server).await;
    let (plain, leased) =
        (policy("plain", ENDLESS), policy("leased", &format!("{ENDLESS} leased(500ms)")));
    let [mut plains, mut leaseds] = [const { Vec::new() }; 2];
    for round in 0..ROUNDS as u64 {
        // Keys that were never checked before.
        let keys = round * CHECKS..(round + 1) * CHECKS;
        let clock = |charges: Charges<'static>| latency(&limiter, charges);
        for key in keys {
            let client = |policy: &Policy| policy.charge(key, 1).into_owned();
            plains.push(clock(client(&plain).into()).await);
            leaseds.push(clock(client(&leased).into()).await);
        }
    }
    let compare = |what: &str, ours: &[f64], theirs: &[f64], bar: &str| {
        let rounds = ours.chunks(CHECKS as usize).zip(theirs.chunks(CHECKS as usize));
        let ratios: Vec<_> = rounds.map(|(ours, theirs)| median(ours) / median(theirs)).collect();
        row(what, median(ours) * 1e6, median(theirs) * 1e6, median(&ratios), bar);
    };
    compare("a cold key of a leased policy, us; without a lease", &leaseds, &plains, "<= 1.05");
}

async fn latency(limiter: &Limiter, charges: Charges<'static>) -> f64 {
    let start = Instant::now();
    let decision = limiter.check(charges).await;
    let time = start.elapsed().as_secs_f64();
    assert!(decision.expect("an answer").is_allowed());
    time
}

/// The units that 4 instances admit together on a key of 1000.
async fn instances() {
    const RUNS: u64 = 10;
    let server = Server::start();
    let policy = Arc::new(policy("exact", "1000/h leased(500ms)"));
    let mut limiters = Vec::new();
    for _ in 0..4 {
        limiters.push(limiter(&server).await);
    }
    let mut admitted = Vec::new();
    for run in 0..RUNS {
        let units = Arc::new(AtomicU64::new(0));
        let mut tasks = JoinSet::new();
        for task in 0..64 {
            let limiter = limiters[task % limiters.len()].clone();
            let (policy, units) = (Arc::clone(&policy), Arc::clone(&units));
            tasks.spawn(async move {
                for _ in 0..50 {
                    let decision = limiter.check(policy.charge(run, 1)).await.expect("an answer");
                    units.fetch_add(u64::from(decision.is_allowed()), Relaxed);
                    yield_now().await;
                }
            });
        }
        while let Some(task) = tasks.join_next().await {
            task.expect("no panic");
        }
        admitted.push(units.load(Relaxed));
    }
    let (least, most) = (admitted.iter().min(), admitted.iter().max());
    let (least, most) = (least.expect("some"), most.expect("some"));
    println!(
        "{:<52} {least:>9} {most:>9} {:>6} {:>7}",
        "4 instances, 1000 exact: least, most", "", "<= 1000"
    );
}
