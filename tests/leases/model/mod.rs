//! A model of a fleet that leases: random histories drive the real [`Stock`](super::stock::Stock) and
//! the real algorithms in virtual time.
//!
//! Each history has several processes, clocks that run at different rates, checks of different costs,
//! processes that lease and processes that do not, refunds, changes of the quota, late and lost
//! messages, suspended tasks, processes that are killed or frozen, and processes that do not poll their
//! renewals. The [`checker`] knows only when
//! each unit was used.
//!
//! `PLIMSOLL_HISTORIES` sets the number of histories: `PLIMSOLL_HISTORIES=1000000 cargo test --release
//! --all-features --lib leases::model`.

mod cases;
mod checker;
mod checks;
mod event;
mod faults;
mod fleet;
mod generator;
mod leftovers;
mod plan;
mod process;
mod report;
mod shared;
mod small_world;
mod utilisation;

use std::io::Write;

use self::{
    cases::{Case, Cases},
    checker::{Violation, judge},
    fleet::Fleet,
    generator::{bounds, plan},
    plan::Mutant,
};
use crate::{quota::Algorithm, seed};

/// Runs a history, and returns the cases that it has reached.
fn run(seed: u64, algorithm: Algorithm, mutant: Option<Mutant>) -> Result<Cases, Violation> {
    let plan = plan(seed, algorithm, mutant);
    let mut fleet = Fleet::new(&plan);
    fleet.run();
    let bounds = bounds(&plan, fleet.changed_at);
    let fullest = judge(&fleet.uses, &bounds)?;
    fleet.cases.count_if(fullest == bounds[0].units, Case::Full);
    Ok(fleet.cases)
}

#[test]
fn no_window_holds_more_than_its_bound() {
    let given = std::env::var("PLIMSOLL_HISTORIES").ok().and_then(|text| text.parse().ok());
    let histories: u64 = given.unwrap_or(400);
    let mut reached = Cases::default();
    for &algorithm in Algorithm::EACH {
        let name = format!("leases of {}", algorithm.name());
        for history in seed::histories(&name, histories.div_ceil(Algorithm::EACH.len() as u64)) {
            match run(history.seed, algorithm, None) {
                Ok(cases) => reached.add(&cases),
                Err(violation) => {
                    let plan = plan(history.seed, algorithm, None);
                    panic!("seed {:#x}: {violation:?}\n{plan:#?}", history.seed);
                }
            }
        }
    }
    let text = format!("\n{histories} histories of leases reached:\n{reached}");
    std::io::stderr().write_all(text.as_bytes()).expect("stderr");
    assert_eq!(reached.missing(histories / 200), Vec::<&str>::new(), "reached too seldom");
}

/// Returns the number of the history in which the checker finds the mutant.
fn found(mutant: Mutant, algorithm: Algorithm) -> u64 {
    let first = seed::seed(&format!("{mutant:?} {algorithm}"));
    (0..2_000)
        .find(|history| run(first.wrapping_add(*history), algorithm, Some(mutant)).is_err())
        .unwrap_or_else(|| panic!("no history finds {mutant:?} under {algorithm}"))
}

const BUCKET: Algorithm = Algorithm::TokenBucket { burst: 1 };

#[test]
fn a_log_that_counts_over_the_window_alone_is_found() {
    found(Mutant::CountsWithoutLease, Algorithm::SlidingLog);
    found(Mutant::CountsWithoutLease, Algorithm::SlidingBuckets(1));
}

#[test]
fn a_bucket_with_its_whole_burst_is_found() {
    found(Mutant::CountsWithoutLease, BUCKET);
}

#[test]
fn a_lease_that_outlives_its_period_is_found() {
    found(Mutant::OutlivesPeriod, Algorithm::FixedWindow);
}

#[test]
fn a_clock_that_is_read_before_the_units_are_taken_is_found() {
    found(Mutant::ReadsClockFirst, Algorithm::SlidingLog);
}

#[test]
fn units_of_a_lost_answer_are_found() {
    found(Mutant::UsesLostAnswer, Algorithm::SlidingLog);
    found(Mutant::UsesLostAnswer, Algorithm::SlidingCounter);
    found(Mutant::UsesLostAnswer, BUCKET);
}

#[test]
fn a_clock_that_runs_at_80_percent_is_found() {
    found(Mutant::SlowClock, Algorithm::SlidingLog);
}
