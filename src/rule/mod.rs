//! Rules, which turn requests into charges, and ready-made closures for them.

pub mod by;
pub mod cost;
mod policy_choice;
pub mod route;
#[expect(clippy::module_inception, reason = "the file of the type that the folder is named after")]
mod rule;
mod rules;
mod tiers;

pub(crate) use self::{
    by::MISSING_PEER, policy_choice::RequestFn, rule::Adjustment, rules::ResponseHooks,
};
pub use self::{
    rule::Rule,
    rules::{RequestCharges, Rules},
    tiers::Tiers,
};
