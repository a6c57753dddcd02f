//! The keys that are denied most and that spend most.

mod offender;
#[allow(clippy::module_inception, reason = "the type has the name of its module")]
mod offenders;
mod policy_counts;
mod sample;
mod sketch;

pub(crate) use self::policy_counts::Totals;
pub use self::{
    offender::{Offender, OffenderOrder},
    offenders::Offenders,
};
