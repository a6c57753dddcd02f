//! The key that a charge is made to, and the identity that an extractor finds in a request.

mod address;
mod from;
mod identity;
#[expect(clippy::module_inception, reason = "the file of the type that the folder is named after")]
mod key;
mod revealed;

pub(crate) use self::address::{SUBSCRIBER_MASK, charged_address};
pub use self::{
    identity::{Identity, IntoIdentity},
    key::Key,
    revealed::RevealedKey,
};
