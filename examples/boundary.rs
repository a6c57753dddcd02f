//! Compares the algorithms at the edge of a window: `cargo run -p plimsoll-examples --example boundary`.
//!
//! The quota is 50 units per 10 s. A client sends 50 requests one second before the edge of a window,
//! and 50 more one second after it. A fixed window admits all 100. The sliding log, which is the
//! default, admits 50.
//!
//! With the argument `--decisions`, each decision is a line.

use std::{env, error::Error, time::Duration};

use plimsoll::{
    Algorithm, Limiter, MemoryStore, Policy, Quota,
    clock::{Clock, ManualClock},
    memory::MemoryConfig,
};

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let quota: Quota = "50/10s".parse()?;
    let each = env::args().any(|argument| argument == "--decisions");
    for algorithm in [
        Algorithm::FixedWindow,
        Algorithm::SlidingCounter,
        Algorithm::TokenBucket { burst: 50 },
        Algorithm::SlidingBuckets(10),
        Algorithm::SlidingLog,
    ] {
        // Windows begin at multiples of 10 s, so this is one second before an edge (in microseconds).
        let clock = ManualClock::at(9_000_000);
        let store = MemoryStore::new(MemoryConfig::default().clock(clock.clone()));
        let limiter = Limiter::new(store);
        let policy = Policy::new("burst", quota.with_algorithm(algorithm)?)?;

        let mut admitted = [0; 2];
        for burst in &mut admitted {
            for _ in 0..50 {
                let allowed = limiter.check(policy.charge("client", 1)).await?.is_allowed();
                if each {
                    println!("{algorithm},{},{allowed}", clock.now().as_micros() / 1_000);
                }
                *burst += u32::from(allowed);
                // The clock is set by hand, so the example does not sleep.
                clock.advance(Duration::from_millis(10));
            }
            clock.advance(Duration::from_millis(1_500));
        }
        let [before, after] = admitted;
        let total = before + after;
        if !each {
            println!("{:<20} {before} + {after} = {total} units", algorithm.to_string());
        }
    }
    Ok(())
}
