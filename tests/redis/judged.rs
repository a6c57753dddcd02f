//! The histories by which the embedded store is judged, judged by the same oracle: raw requests
//! and rational numbers, which share nothing with either implementation.

use std::sync::atomic::{AtomicU64, Ordering};

use plimsoll::{
    Algorithm, Limiter, RedisStore,
    clock::ManualClock,
    redis::RedisConfig,
    store::{Answer, Request, Store, Traits},
};
use plimsoll_testing::histories::{
    self, histories, of_each_algorithm,
    rollout::{self, Steps},
};
use proptest::test_runner::Config;
use tokio::runtime::Runtime;

use crate::patient;
use plimsoll_testing::{CaseCounts, Fixture, seed, servers::Server};

/// Waits for each answer, for tests that do not.
#[derive(Debug)]
struct Waiting(RedisStore, Runtime);

impl Store for Waiting {
    fn call(&self, request: Request<'_>, deadline: Option<std::time::Instant>) -> Answer {
        Answer::ready(self.1.block_on(self.0.call(request, deadline)))
    }

    /// Like an embedded store, it is called by the thread of the test alone.
    fn traits(&self) -> Traits {
        let mut traits = Traits::default();
        traits.is_embedded = true;
        traits.counts_leases = true;
        traits.marks_debts = true;
        traits
    }
}

fn agrees(name: &str, algorithm: Option<Algorithm>, full: u32) {
    let server = Server::start();
    let tally = CaseCounts::expecting(&[
        "admitted",
        "denied",
        "over capacity",
        "refund in full",
        "clock set back by more than a window",
        "lease granted",
        "lease begun",
        "lease ended",
        "penalty",
        "block",
        "block extended",
        "block lifted",
    ]);
    let runtime = || tokio::runtime::Builder::new_current_thread().enable_all().build();
    let cases = std::env::var("PLIMSOLL_HISTORIES").ok().and_then(|it| it.parse().ok());
    let config = Config { cases: cases.unwrap_or(full), ..Config::default() };
    static NEXT: AtomicU64 = AtomicU64::new(0);
    seed::property(name, config, histories(algorithm), |history| {
        let prefix = format!("h{}", NEXT.fetch_add(1, Ordering::Relaxed));
        let config = patient().prefix(prefix).connections(1);
        let runtime = runtime().expect("a runtime");
        let store = runtime.block_on(RedisStore::connect_with(
            RedisConfig::url(server.url()).with_settings(config),
        ));
        let clock = ManualClock::default();
        let store = store.expect("a store").with_test_clock(clock.clone());
        let fixture = Fixture::new(
            Limiter::with_resilience(Waiting(store, runtime), plimsoll::Resilience::none()),
            move |at| clock.set(at),
        )
        .shared();
        histories::run(&fixture, &history, &tally);
        Ok(())
    });
    tally.report(name);
    server.assert_all_keys_expire();
}

#[test]
fn each_algorithm() {
    of_each_algorithm(|algorithm| {
        agrees(&format!("{} in Redis", algorithm.name()), Some(algorithm), 400);
    });
}

#[test]
fn several_algorithms_in_one_check() {
    agrees("mixed in Redis", None, 600);
}

fn server_of_rollouts() -> (Server, Fixture) {
    let server = Server::start();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.expect("a runtime");
    let store = runtime.block_on(RedisStore::connect_with(
        RedisConfig::url(server.url()).with_settings(patient()),
    ));
    let clock = ManualClock::default();
    let store = store.expect("a store").with_test_clock(clock.clone());
    let limiter = Limiter::with_resilience(Waiting(store, runtime), plimsoll::Resilience::none());
    (server, Fixture::new(limiter, move |at| clock.set(at)))
}

/// Old and new instances at once.
#[test]
fn two_quotas_at_random_are_bounded() {
    let (_server, fixture) = server_of_rollouts();
    for one in seed::histories("rollout in Redis", 60) {
        for algorithm in Algorithm::EACH.iter().copied() {
            rollout::run(&fixture, algorithm, one.seed);
        }
    }
}

/// Instances that lease, and others.
#[test]
fn leases_that_begin_or_end_in_a_roll_out_are_bounded() {
    let (_server, fixture) = server_of_rollouts();
    for one in seed::histories("rollout of leases in Redis", 20) {
        for algorithm in Algorithm::EACH.iter().copied() {
            for steps in [Steps::One, Steps::Two] {
                rollout::run_leased(&fixture, algorithm, one.seed, steps);
            }
        }
    }
}
