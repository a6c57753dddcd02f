//! The circuit breaker, which rejects calls to a store that keeps failing, and lets more and more
//! of them through once the store answers again.
//!
//! [`Breaker`](machine::Breaker) is the state machine, without clock, store or locks.
//! [`SharedBreaker`] is the one that calls on many threads share. [`prober`] is the task that
//! probes the store while the breaker is open.

mod config;
mod failure_rate;
mod machine;
pub(super) mod prober;
mod shared;
#[cfg(test)]
mod tests;

pub use self::config::BreakerConfig;
pub(super) use self::{
    machine::{BreakerState, CallOutcome},
    shared::{Permit, SharedBreaker},
};
