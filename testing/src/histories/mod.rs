//! Random histories, played against a limiter and the oracle side by side.

mod history;
mod judge;
mod penalties;
pub mod rollout;
mod run;
mod spending;
pub mod trials;

use std::thread;

use plimsoll::Algorithm;

pub use self::{
    history::{Change, Cost, History, Move, Part, PlannedCharge, Step, histories, leased},
    run::{Admitted, Changed, Held, Player, run},
};

/// Runs a test of each algorithm, all at the same time.
pub fn of_each_algorithm(test: impl Fn(Algorithm) + Sync) {
    let test = &test;
    thread::scope(|scope| {
        for algorithm in Algorithm::EACH {
            scope.spawn(move || test(*algorithm));
        }
    });
}
