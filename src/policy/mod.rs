//! A named quota, and charges under it.

mod charges;
mod counters;
mod live_quotas;
mod name;
mod on_failure;
#[expect(clippy::module_inception, reason = "the file of the type that the folder is named after")]
mod policy;

#[cfg(feature = "tracing")]
pub(crate) use self::counters::EventSample;
pub use self::{
    charges::Charges,
    counters::TrialCounts,
    live_quotas::KeyQuota,
    on_failure::OnFailure,
    policy::{Charge, Policy},
};
pub(crate) use self::{
    counters::{OUTCOMES, Verdicts},
    on_failure::FailurePolicy,
};
