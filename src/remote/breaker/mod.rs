//! The circuit breaker, which rejects calls to a store that keeps failing, and lets more and more
//! of them through once the store answers again.
//!
//! [`Breaker`](machine::Breaker) is the state machine, without clock, store or locks.
//! [`SharedBreaker`] is the one that calls on many threads share. [`Breakers`] has one for each node
//! of the store. A [task](super::recovery) probes a node while its breaker is open.

mod breakers;
mod config;
mod machine;
mod shared;
#[cfg(test)]
mod tests;

pub use self::config::BreakerConfig;
pub(super) use self::{
    breakers::{Breakers, NodePermit, Permits, Rejected},
    machine::{BreakerState, CallOutcome},
    shared::{NextStep, Permit, SharedBreaker},
};
