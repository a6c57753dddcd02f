//! The circuit breaker, which rejects calls to a store that keeps failing.
//!
//! [`Breaker`](machine::Breaker) is the state machine, without clock, store or locks.
//! [`SharedBreaker`] has a lock around it, so that calls on many threads share it. [`Breakers`] has one for
//! each node of the store. A [task](super::recovery) probes a node while its breaker is open.

mod breakers;
mod machine;
mod shared;
#[cfg(test)]
mod tests;

pub use self::machine::BreakerConfig;
pub(super) use self::{
    breakers::{Breakers, NodePermit, Permits},
    machine::CallOutcome,
    shared::SharedBreaker,
};
