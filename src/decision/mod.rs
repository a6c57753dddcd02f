//! The result of a check: a decision, the standing of each key, and the receipt for a refund.

pub(crate) mod charge_reply;
#[expect(clippy::module_inception, reason = "the file of the type that the folder is named after")]
mod decision;
mod outcome;
mod receipt;
pub(crate) mod standing;
pub(crate) mod store_reply;

pub(crate) use self::{
    charge_reply::{ChargeReply, Verdict},
    decision::Checked,
    standing::Mark,
    store_reply::{Source, StoreReply},
};
pub use self::{
    decision::{Allowed, Decision, Denied},
    outcome::{Outcome, Outcomes},
    receipt::{Receipt, ReceiptLine},
    standing::Standing,
};
