//! The result of a check: a decision, the standing of each key, and the receipt for a refund.

#[expect(clippy::module_inception, reason = "the file of the type that the folder is named after")]
mod decision;
mod outcome;
mod receipt;
pub(crate) mod standing;
pub(crate) mod store_reply;

pub use self::{
    decision::{Allowed, Decision, Denied},
    outcome::{Outcome, Outcomes},
    receipt::{Receipt, ReceiptLine},
    standing::Standing,
};
pub(crate) use self::{
    standing::Mark,
    store_reply::{ChargeReply, Source, StoreReply, Verdict},
};
