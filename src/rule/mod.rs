//! Rules, which turn requests into charges, and ready-made closures for them.

pub mod by;
mod charges;
pub mod cost;
mod policy_choice;
pub mod route;
#[expect(clippy::module_inception, reason = "the file of the type that the folder is named after")]
mod rule;
mod rules;
mod tiers;

pub(crate) use self::{
    by::MissingPeer, charges::ResponseHooks, policy_choice::RequestFn, rule::Adjustment,
};
pub use self::{charges::RequestCharges, rule::Rule, rules::Rules, tiers::Tiers};
