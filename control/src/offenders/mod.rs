//! The keys that are denied most and that spend most.

mod counts;
mod fleet;
#[allow(clippy::module_inception, reason = "the type has the name of its module")]
mod offenders;
mod sketch;

pub use self::offenders::{Offender, Offenders};
