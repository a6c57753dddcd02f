//! The latency of one check at a time: a task that checks in a row, beside a raw EVALSHA of the same
//! script over one multiplexed connection.

use plimsoll::{Limiter, Policy, RedisStore, Resilience};
use redis::{Cmd, Script, Value, aio::MultiplexedConnection};
use tokio::time::Instant;

use crate::{
    server::Server,
    throughput::{SCRIPT, median, packed_charge},
};

const ROUNDS: usize = 41;
const CHECKS_PER_ROUND: usize = 500;
const KEYS: u64 = 1_000;

pub(crate) async fn run() {
    let server = Server::start();
    let quota = "1000000/s token-bucket(1000000)";
    let policy = Policy::new("eightlet", quota).expect("valid");
    let store = RedisStore::connect(&server.url()).await.expect("a store");
    let limiters = [
        (
            "a check, without resilience",
            Limiter::with_resilience(store.clone(), Resilience::none()),
        ),
        ("a check, with the default resilience", Limiter::new(store)),
    ];
    let options = redis::AsyncConnectionConfig::new().set_response_timeout(None);
    let client = server.client();
    let raw = client.get_multiplexed_async_connection_with_config(&options).await;
    let mut raw = raw.expect("a connection");
    let script = Script::new(SCRIPT);
    for (_, limiter) in &limiters {
        let _ = limiter.check(policy.charge(0, 1)).await.expect("an answer");
    }
    let (mut raw_medians, mut medians) = (Vec::new(), vec![Vec::new(); limiters.len()]);
    for _ in 0..ROUNDS {
        raw_medians.push(raw_round(&mut raw, script.get_hash()).await);
        for ((_, limiter), medians) in limiters.iter().zip(&mut medians) {
            medians.push(round(limiter, &policy).await);
        }
    }
    println!("one task, {KEYS} keys, one charge; medians of {ROUNDS} interleaved rounds");
    println!("{:<40} {:>8} {:>7} {:>5}", "", "p50 us", "x raw", "bar");
    println!("{:<40} {:>8.1} {:>7.2}", "raw EVALSHA", median(&raw_medians) * 1e6, 1.0);
    for ((name, _), medians) in limiters.iter().zip(&medians) {
        // Each round is compared with the raw one beside it.
        let ratios: Vec<_> =
            medians.iter().zip(&raw_medians).map(|(ours, raw)| ours / raw).collect();
        println!("{name:<40} {:>8.1} {:>7.2} {:>5}", median(medians) * 1e6, median(&ratios), 1.1);
    }
}

/// Returns the median time of a check, in seconds.
async fn round(limiter: &Limiter, policy: &Policy) -> f64 {
    let mut times = Vec::with_capacity(CHECKS_PER_ROUND);
    for check in 0..CHECKS_PER_ROUND as u64 {
        let start = Instant::now();
        let decision = limiter.check(policy.charge(check % KEYS, 1)).await;
        times.push(start.elapsed().as_secs_f64());
        assert!(decision.expect("an answer").is_allowed());
    }
    median(&times)
}

/// Returns the median time of a raw EVALSHA, in seconds.
async fn raw_round(raw: &mut MultiplexedConnection, sha: &str) -> f64 {
    let line = packed_charge(4, 1e6, 1e6, 1e6);
    let mut times = Vec::with_capacity(CHECKS_PER_ROUND);
    for check in 0..CHECKS_PER_ROUND as u64 {
        let name = format!("raw:{{{:022}}}:eightlet:t1", check % KEYS);
        let start = Instant::now();
        let mut command = Cmd::new();
        command.arg("EVALSHA").arg(sha).arg(1).arg(&name).arg("a").arg(&line);
        let answer: Result<Value, _> = command.query_async(raw).await;
        times.push(start.elapsed().as_secs_f64());
        answer.expect("an answer");
    }
    median(&times)
}
