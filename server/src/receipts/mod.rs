//! Receipts that clients keep: signed texts, which are valid for a time and used once.
//!
//! - `content`: the parts of a receipt, and how a receipt of the library is restored from them;
//! - `signer`: the text of a receipt, and its signature;
//! - `claims`: the record that a receipt was used, in the store that all instances share;
//! - `receipts`: the three together.

mod claims;
mod content;
#[expect(clippy::module_inception, reason = "the file of the type that the folder is named after")]
mod receipts;
mod signer;

pub(crate) use self::{
    claims::Claim,
    content::{Content, Issued, Kind},
    receipts::{ReceiptError, Receipts},
};
