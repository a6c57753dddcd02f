//! A unit in flight, taken and released over Redis by 64 tasks, against a check of a rate.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use plimsoll::{
    Key, Limiter, Policy, RedisStore, Resilience, limiter::Reserved, redis::RedisConfig,
};

use crate::{
    server::Server,
    throughput::{Measurements, median, quantile, round},
};

const TASKS: usize = 64;
const RATE: &str = "1000000/30s";
const CONCURRENT: &str = "1000000 concurrent expires(30s)";

pub(crate) async fn run(seconds: f64) {
    let server = Server::start();
    // A busy machine may take longer than the default.
    let patient = RedisConfig::default().response_timeout(Duration::from_secs(10));
    let config = RedisConfig::url(server.url()).with_settings(patient);
    let store = RedisStore::connect_with(config).await.expect("a store");
    let shared = Limiter::with_resilience(store, Resilience::none());
    for keys in [1_000, 1] {
        let mut results: BTreeMap<&str, Measurements> = BTreeMap::new();
        for _ in 0..7 {
            for quota in [RATE, CONCURRENT] {
                // A policy keeps what was spent when its quota changes.
                let name = if quota == RATE { "rate" } else { "in-flight" };
                let policy = Arc::new(Policy::new(name, quota).expect("valid"));
                let limiter = shared.clone();
                round(TASKS, seconds, keys, results.entry(quota).or_default(), move |key| {
                    let (limiter, policy) = (limiter.clone(), Arc::clone(&policy));
                    async move {
                        let charge = policy.charge(Key::from(key), 1);
                        if quota == RATE {
                            drop(limiter.check(charge).await.expect("an answer"));
                        } else {
                            let held = limiter.reserve(charge).await.expect("an answer");
                            assert!(matches!(held, Reserved::Held(_)));
                        }
                    }
                })
                .await;
            }
        }
        let [rates, both] = [RATE, CONCURRENT].map(|quota| &results[quota].rates);
        // Each round is compared with the one beside it.
        let ratios: Vec<f64> = rates.iter().zip(both).map(|(rate, both)| rate / both).collect();
        let [low, ratio, high] = [0.25, 0.5, 0.75].map(|at| quantile(&ratios, at));
        println!(
            "{TASKS} tasks, {keys} keys: {:.0} checks/s, {:.0} taken and released/s: {ratio:.2} x a check \
             [{low:.2}, {high:.2}], at most 1.6",
            median(rates),
            median(both)
        );
    }
}
