//! Rules, which turn requests into charges, and ready-made closures for them.

mod adjustment;
pub mod by;
pub mod cost;
mod preflight;
pub mod route;
#[expect(clippy::module_inception, reason = "the file of the type that the folder is named after")]
mod rule;
mod tiers;

pub(crate) use self::{adjustment::Adjustment, rule::RequestFn};
pub use self::{rule::Rule, tiers::Tiers};
