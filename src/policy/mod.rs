//! A named quota, and charges under it.

mod charge;
mod charges;
mod counters;
mod key_watch;
mod live_quota;
mod on_failure;
#[expect(clippy::module_inception, reason = "the file of the type that the folder is named after")]
mod policy;

pub use self::{charge::Charge, charges::Charges, on_failure::OnFailure, policy::Policy};
