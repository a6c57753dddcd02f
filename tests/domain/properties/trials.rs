//! A trial decides as if its quota were the only limit, whatever the live charges decide.

use plimsoll::Algorithm;
use plimsoll_testing::{
    CaseCounts,
    histories::trials::{self, CASES},
    memory, now, seed,
};

/// `PLIMSOLL_HISTORIES` sets another number for each algorithm.
#[test]
fn a_trial_agrees_with_an_oracle_that_sees_it_alone() {
    let tally = CaseCounts::expecting(CASES);
    let count = std::env::var("PLIMSOLL_HISTORIES").ok().and_then(|it| it.parse().ok());
    for one in seed::histories("trials", count.unwrap_or(600)) {
        for algorithm in Algorithm::EACH.iter().copied() {
            trials::run(&now(memory()), algorithm, one.seed, &tally);
        }
    }
    tally.report("trials");
}
