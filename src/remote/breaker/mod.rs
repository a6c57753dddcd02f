//! The circuit breaker, which rejects calls to a store that keeps failing.
//!
//! [`SharedBreaker`] is the breaker of one node, and [`Breakers`] has one for each node of the store. A
//! [task](super::recovery) probes a node while its breaker is open.

#[expect(clippy::module_inception, reason = "the file of the type that the folder is named after")]
mod breaker;
mod breakers;
#[cfg(test)]
mod tests;

pub use self::breaker::BreakerConfig;
pub(super) use self::{
    breaker::{CallOutcome, SharedBreaker},
    breakers::{Breakers, NodePermit, Permits},
};
