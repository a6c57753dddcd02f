//! The parts that the tests of all packages share: servers and proxies, the oracle and its histories, the
//! contract of every store, seeds, and measured time.
#![allow(missing_docs, reason = "the package is not published")]

pub mod algorithms;
mod alone;
pub mod calm;
pub mod contract;
mod counted;
pub mod example;
pub mod fault_row;
mod fixture;
pub mod histories;
pub mod log;
pub mod oracle;
pub mod proxy;
pub mod role;
pub mod seed;
pub mod servers;
pub mod shapes;
pub mod spoiling_proxy;
pub mod web;

use plimsoll::{Algorithm, Quota};

pub use self::{
    alone::alone,
    counted::Counted,
    fixture::{
        CaseCounts, Fixture, Watched, hold, memory, micros, most_in_any_window, now, policy,
        wrapped_memory,
    },
};
