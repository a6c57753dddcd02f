//! A unit in flight, taken and released, against a check of a rate: over Redis by 64 tasks, and embedded.

use std::{collections::BTreeMap, hint::black_box, sync::Arc};

use plimsoll::{Key, Limiter, Policy, RedisConfig, RedisStore, Reserve, Resilience};
use tokio::time::Instant;

use crate::{
    server::Server,
    throughput::{Measurements, median, round},
};

const TASKS: usize = 64;
const RATE: &str = "1000000/30s";
const CONCURRENT: &str = "1000000 concurrent expires(30s)";

pub(crate) async fn run(seconds: f64) {
    let server = Server::start();
    let config = RedisConfig::url(server.url());
    let store = RedisStore::connect_with(config).await.expect("a store");
    let shared = Limiter::with(store, Resilience::none());
    for keys in [1_000, 1] {
        let mut results: BTreeMap<&str, Measurements> = BTreeMap::new();
        for _ in 0..7 {
            for quota in [RATE, CONCURRENT] {
                let policy = Arc::new(Policy::new("bench", quota).expect("valid"));
                let limiter = shared.clone();
                round(TASKS, seconds, keys, results.entry(quota).or_default(), move |key| {
                    let (limiter, policy) = (limiter.clone(), Arc::clone(&policy));
                    async move {
                        let charge = policy.charge(Key::from(key), 1);
                        if quota == RATE {
                            drop(limiter.check(charge).await.expect("an answer"));
                        } else {
                            let held = limiter.reserve(charge).await.expect("an answer");
                            assert!(matches!(held, Reserve::Held(_)));
                        }
                    }
                })
                .await;
            }
        }
        let [rate, both] = [RATE, CONCURRENT].map(|quota| median(&results[quota].rates));
        println!(
            "{TASKS} tasks, {keys} keys: {rate:.0} checks/s, {both:.0} taken and released/s: {:.2} x a check",
            rate / both
        );
    }
    embedded().await;
}

async fn embedded() {
    const ROUND: u32 = 200_000;
    let limiter = Limiter::in_memory();
    let [rate, in_flight] = [RATE, CONCURRENT].map(|quota| {
        Policy::new(if quota == RATE { "rate" } else { "in-flight" }, quota).expect("valid")
    });
    let keys: Vec<Key> = (0..1_000_u64).map(Key::from).collect();
    let (mut checks, mut both) = (Vec::new(), Vec::new());
    for _ in 0..9 {
        let start = Instant::now();
        for number in 0..ROUND {
            let key = keys[number as usize % keys.len()];
            drop(black_box(limiter.check(rate.charge(key, 1)).await.expect("an answer")));
        }
        checks.push(start.elapsed().as_secs_f64() * 1e9 / f64::from(ROUND));
        let start = Instant::now();
        for number in 0..ROUND {
            let key = keys[number as usize % keys.len()];
            drop(black_box(limiter.reserve(in_flight.charge(key, 1)).await.expect("an answer")));
        }
        both.push(start.elapsed().as_secs_f64() * 1e9 / f64::from(ROUND));
        tokio::task::yield_now().await;
    }
    let (check, both) = (median(&checks), median(&both));
    println!(
        "embedded: {check:.0} ns a check, {both:.0} ns taken and released: {:.2} x a check",
        both / check
    );
}
