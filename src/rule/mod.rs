//! Rules, which turn requests into charges, and ready-made closures for them.

pub mod by;
mod charges;
pub mod cost;
#[cfg(feature = "lookup")]
mod lookup;
#[cfg_attr(not(feature = "lookup"), expect(dead_code, reason = "only a `Lookup` adds lookups"))]
mod lookups;
mod policy_choice;
pub mod route;
#[expect(clippy::module_inception, reason = "the file of the type that the folder is named after")]
mod rule;
mod rules;
mod tiers;

#[cfg(feature = "lookup")]
pub use self::lookup::Lookup;
pub(crate) use self::{
    by::MissingPeer,
    charges::{RequestCharges, ResponseHook, ResponseHooks},
    lookups::PendingLookups,
    policy_choice::RequestFn,
    rule::Adjustment,
    rules::{ApplicableRules, Rules},
};
pub use self::{rule::Rule, tiers::Tiers};
