//! The commands that Redis receives, by the share of the checks that are of hot keys, with and without a
//! lease.

use std::time::Duration;

use plimsoll::{Limiter, Policy, RedisStore};
use plimsoll_testing::servers::Server;
use tokio::time::Instant;

use crate::{load::steady, redis_info::Counts};

const PROCESSES: usize = 4;
const TIME: Duration = Duration::from_secs(3);
const RATE: f64 = 8_000.0;
const HOT_KEYS: u64 = 10;
const COLD_KEYS: u64 = 100_000;
const QUOTA: &str = "60000/min sliding-buckets(60)";
const LEASE: &str = "leased(500ms)";
/// In thousandths.
const SHARES: [u64; 7] = [0, 250, 500, 750, 900, 990, 1_000];

pub(crate) async fn print() {
    println!("share,lease,seconds,decisions,admitted,calls,redis_cpu_us");
    for share in SHARES {
        for lease in ["", LEASE] {
            let policy = Policy::new("limits", &*format!("{QUOTA} {lease}")).expect("valid");
            let server = Server::start();
            let mut limiters = Vec::new();
            for _ in 0..PROCESSES {
                let store = RedisStore::connect(&server.url()).await.expect("a store");
                limiters.push(Limiter::new(store));
            }
            let key = move |random: &mut plimsoll_testing::seed::Random| match random.below(1_000)
                < share
            {
                true => random.below(HOT_KEYS),
                false => HOT_KEYS + random.below(COLD_KEYS),
            };
            // The processes learn which keys are hot.
            steady(&limiters, &policy, RATE, Duration::from_millis(1_500), key).await;
            let (before, begin) = (Counts::of(&server), Instant::now());
            let (decisions, admitted) = steady(&limiters, &policy, RATE, TIME, key).await;
            let (cpu, calls) = Counts::of(&server).since(before);
            println!(
                "{},{},{:.2},{decisions},{admitted},{calls},{cpu:.0}",
                share as f64 / 1_000.0,
                if lease.is_empty() { "none" } else { "500ms" },
                begin.elapsed().as_secs_f64(),
            );
            for limiter in limiters {
                limiter.close().await.expect("it ends");
            }
        }
    }
}
