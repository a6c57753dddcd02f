//! The result of a check: a decision, the standing of each key, and the receipt for a refund.

mod charge_reply;
#[expect(clippy::module_inception, reason = "the file of the type that the folder is named after")]
mod decision;
mod mark;
mod receipt;
mod standing;
mod store_reply;

pub use self::{
    charge_reply::{ChargeReply, Verdict},
    decision::{Allowed, Decision, Denied, Outcome, Outcomes},
    mark::Mark,
    receipt::{Receipt, Spent},
    standing::Standing,
    store_reply::{Source, StoreReply},
};
