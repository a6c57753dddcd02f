//! A named quota, and charges under it.

mod charge;
mod charges;
mod key_quotas;
mod key_table;
mod key_watch;
#[expect(clippy::module_inception, reason = "the file of the type that the folder is named after")]
mod policy;
mod seq_lock;

pub(crate) use self::charge::FailurePolicy;
pub use self::{
    charge::{Charge, OnFailure},
    charges::Charges,
    key_quotas::KeyQuota,
    policy::Policy,
};
