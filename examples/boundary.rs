//! Why the default is exact: `cargo run --example boundary`.
//!
//! 50 units per 10 s, and a client that sends a full burst one second before and one second after a
//! window's edge. A fixed window admits both bursts; the sliding log admits one.

use std::{error::Error, time::Duration};

use tollgate::{
    Algorithm, Limiter, ManualClock, Policy, Quota,
    store::{MemoryConfig, MemoryStore},
};

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let quota: Quota = "50/10s".parse()?;
    for algorithm in [
        Algorithm::FixedWindow,
        Algorithm::SlidingCounter,
        Algorithm::TokenBucket { burst: 50 },
        Algorithm::SlidingBuckets(10),
        Algorithm::SlidingLog,
    ] {
        let clock = ManualClock::at(9_000_000); // one second before the edge at 10 s
        let store = MemoryStore::new(MemoryConfig::default().clock(clock.clone()));
        let limiter = Limiter::new(store);
        let policy = Policy::new("burst", quota.with_algorithm(algorithm)?)?;

        let mut admitted = [0; 2];
        for burst in &mut admitted {
            for _ in 0..50 {
                *burst += u32::from(limiter.check(policy.charge("client", 1)).await?.is_allowed());
            }
            clock.advance(Duration::from_secs(2));
        }
        let [before, after] = admitted;
        let total = before + after;
        println!("{:<20} {before} + {after} = {total} units in 2 seconds", algorithm.to_string());
    }
    Ok(())
}
