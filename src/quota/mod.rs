//! Quotas: units per window, and the algorithm that counts them.

mod algorithm;
#[expect(clippy::module_inception, reason = "the file of the type that the folder is named after")]
mod quota;
mod text;

pub(crate) use self::algorithm::{UnitsReturn, for_each_algorithm};
pub use self::{algorithm::Algorithm, quota::Quota};
