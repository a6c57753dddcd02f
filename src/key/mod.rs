//! The key that a charge is made to, and the identity that an extractor finds in a request.

mod address;
mod encoding;
mod from;
mod identity;
#[expect(clippy::module_inception, reason = "the file of the type that the folder is named after")]
mod key;

pub(crate) use self::address::{SUBSCRIBER_MASK, charged_address, charged_key};
pub use self::{
    identity::{Identity, IntoIdentity},
    key::Key,
};
