//! Random histories: the limiter decides exactly as the oracle does, waits are exact to the
//! microsecond, and no trailing window holds more than the published bound.

mod refunds;
mod steady;
mod trials;

use plimsoll::{Algorithm, Policy};
use plimsoll_testing::{
    CaseCounts, Fixture,
    algorithms::{Returns, returns},
    histories::{
        self, histories, of_each_algorithm,
        rollout::{self, Steps},
    },
    memory, most_in_any_window, now,
    oracle::counted,
    seed,
};
use proptest::test_runner::Config;

use crate::contract::over_a_map;

/// Situations that the histories of any algorithm must reach.
const HARD: &[&str] = &[
    "admitted",
    "denied",
    "over capacity",
    "cost of 0",
    "several charges",
    "the same policy and key twice",
    "shadow beside its own charge",
    "shadow refused, check admitted",
    "trial spent, check denied",
    "granted more than the cost",
    "lease granted",
    "burst at one instant",
    "time ran backward",
    "clock set back by more than a window",
    "exact wait proved",
    "waited exactly, then admitted",
    "limit x window beyond 2^53",
    "rate that does not divide",
    "refund in full",
    "refund of nothing",
    "settle upward",
    "settle upward beyond the limit",
    "settle downward",
    "reset",
    "penalty",
    "block",
    "block shorter than the one in force",
    "block extended",
    "block lifted",
    "block that ended before its algorithm's wait",
    "limit raised",
    "limit lowered",
    "limit lowered below what is spent",
    "window grown",
    "window shrunk",
    "changed twice within a window",
    "lease begun",
    "lease ended",
    "lease longer",
    "lease shorter",
    "bound proved",
    "bound proved after a change",
];

fn agrees(name: &str, store: impl AsyncFn() -> Fixture, algorithm: Option<Algorithm>, full: u32) {
    // A bucket pays a debt off bit by bit; everywhere else a request leaves as a whole.
    let bucket: &[_] = match algorithm.map(returns) {
        Some(Returns::AtRate) | None => &["burst raised", "burst lowered", "refund in part"],
        Some(Returns::AfterWindow | Returns::ByPeriod) => &[],
    };
    let tally = CaseCounts::expecting(&[HARD, bucket].concat());
    // Few histories are run to see one of them again.
    let cases = std::env::var("PLIMSOLL_HISTORIES").ok().and_then(|it| it.parse().ok());
    let config =
        Config { cases: cases.unwrap_or(full), max_shrink_iters: 20_000, ..Config::default() };
    seed::property(name, config, histories(algorithm), |history| {
        let fixture = now(store());
        histories::run(&fixture, &history, &tally);
        Ok(())
    });
    tally.report(name);
}

#[test]
fn each_algorithm() {
    of_each_algorithm(|algorithm| agrees(algorithm.name(), memory, Some(algorithm), 1_500));
}

#[test]
fn several_algorithms_in_one_check() {
    agrees("mixed", memory, None, 2_000);
}

/// A store may remove a state as soon as it has expired.
#[test]
fn a_store_that_removes_all_expired_states() {
    agrees("expired states removed", over_a_map, None, 1_000);
}

/// Old and new instances at once.
#[test]
fn two_quotas_at_random_are_bounded() {
    for one in seed::histories("rollout", 1_000) {
        for algorithm in Algorithm::EACH.iter().copied() {
            rollout::run(&now(memory()), algorithm, one.seed);
        }
    }
}

/// Instances that lease, and others.
#[test]
fn leases_that_begin_or_end_in_a_roll_out_are_bounded() {
    for one in seed::histories("rollout of leases", 1_000) {
        for algorithm in Algorithm::EACH.iter().copied() {
            for steps in [Steps::One, Steps::Two] {
                rollout::run_leased(&now(memory()), algorithm, one.seed, steps);
            }
        }
    }
}

/// The bound of a roll-out in one step is reached: an instance that does not lease sees units leave
/// that another one has used just before.
#[test]
fn a_log_that_some_instances_lease_can_admit_twice_its_limit() {
    for (text, expected) in [("10/10s", 20), ("10/11s", 10)] {
        let fixture = now(memory());
        let [leased, other] = ["10/10s leased(1s)", text]
            .map(|text| text.parse().expect("valid"))
            .map(|quota| Policy::new("shared", counted(&quota, true)).expect("valid"));
        let start = 1_700_000_000_000_000;
        fixture.set(start);
        assert!(
            now(fixture.limiter.check(leased.charge("alice", 10))).expect("an answer").is_allowed()
        );
        fixture.set(start + 10_000_000);
        let later = now(fixture.limiter.check(other.charge("alice", 10))).expect("an answer");
        let mut uses = vec![(start + 1_000_000, 10)];
        if later.is_allowed() {
            uses.push((start + 10_000_000, 10));
        }
        assert_eq!(most_in_any_window(&uses, 10_000_000), expected, "{text}");
    }
}
