//! A named quota, and charges under it.

mod charge;
mod charges;
mod key_watch;
#[expect(clippy::module_inception, reason = "the file of the type that the folder is named after")]
mod policy;

pub(crate) use self::charge::FailurePolicy;
pub use self::{
    charge::{Charge, OnFailure},
    charges::Charges,
    policy::Policy,
};
