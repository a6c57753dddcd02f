//! The shared store, against real servers.

mod batches;
mod clock_steps;
mod connections;
mod contract;
mod corners;
mod differential;
mod errors;
mod expiry;
mod faults;
mod frozen;
mod hostile;
mod in_flight;
mod instances;
mod judged;
mod leased_checks;
mod memory;
mod nagle;
mod no_runtime;
mod nodes;
mod permits;
mod processes;
mod recovery;
mod rights;
mod runtimes;
mod self_test;
mod several_slots;
mod starts;
mod strays;
mod topology;
mod validation;
mod walk;
mod wire;
mod wrapped;

use plimsoll::{Decision, Limiter, Policy, Quota, RedisStore, redis::RedisConfig};
use plimsoll_testing::servers::PATIENCE;

/// Returns a configuration for tests that do not measure time.
pub(crate) fn patient() -> RedisConfig {
    RedisConfig::default().connect_timeout(PATIENCE).response_timeout(PATIENCE)
}

pub(crate) fn policy(name: &str, quota: &str) -> Policy {
    Policy::new(name, quota.parse::<Quota>().expect("a valid quota")).expect("a valid name")
}

/// Returns whether one unit is admitted.
pub(crate) async fn admits(limiter: &Limiter, policy: &Policy, key: &str) -> bool {
    match limiter.check(policy.charge(key, 1)).await.expect("an answer") {
        Decision::Allowed(_) => true,
        Decision::Denied(_) => false,
    }
}

/// A store works as it should: three units of three, and not a fourth.
pub(crate) async fn assert_works(store: RedisStore) {
    let limiter = Limiter::with_resilience(store, plimsoll::Resilience::none());
    let policy = policy("works", "3/h");
    for expected in [true, true, true, false] {
        assert_eq!(admits(&limiter, &policy, "alice").await, expected);
    }
}
