//! A named quota, and a charge under it.

mod charge;
mod live;
#[expect(clippy::module_inception, reason = "the file of the type that the folder is named after")]
mod policy;

pub use self::{
    charge::{Charge, Charges, OnFailure},
    policy::Policy,
};
