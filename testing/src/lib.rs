//! The parts that the tests of all packages share: servers and proxies, the oracle and its histories, the
//! contract of every store, seeds, and measured time.
#![allow(missing_docs, reason = "the package is not published")]

pub mod algorithms;
mod alone;
pub mod calm;
mod counted;
pub mod delays;
pub mod example;
pub mod fault_row;
mod fixture;
pub mod histories;
pub mod log;
pub mod oracle;
pub mod postgres;
pub mod proxy;
pub mod role;
pub mod seed;
pub mod servers;
pub mod shapes;
pub mod spoiling_proxy;
pub mod web;

use plimsoll::{Algorithm, Quota};

pub use plimsoll_contract::{
    self as contract, Fixture, hold, micros, most_in_any_window, policy, shared_suite,
};

pub use self::{
    alone::alone,
    counted::Counted,
    fixture::{CaseCounts, Watched, after_the_keeper, memory, now, wrapped_memory},
};

/// Runs the contract of every store, and the contract of the [layer](delays) over it.
#[macro_export]
macro_rules! store_contract {
    ($store:ident, $make:path) => {
        mod $store {
            $crate::contract::suite!($make);

            #[test]
            fn requests_over_their_limit_wait() {
                use $crate::delays::requests_over_their_limit_wait as promise;
                $crate::contract::run(async { promise($make().await).await });
            }

            #[test]
            fn requests_that_would_come_too_late_are_denied_at_once() {
                use $crate::delays::requests_that_would_come_too_late_are_denied_at_once as promise;
                $crate::contract::run(async { promise($make().await).await });
            }
        }
    };
}
