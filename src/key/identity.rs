//! The identity of the client of a request.

use super::Key;

/// The identity that an extractor finds in a request: the key that is charged, if any.
///
/// Extractors return a [`Key`], an `Option` of one, or an identity.
///
/// ```
/// use plimsoll::{Key, key::Identity};
///
/// assert_eq!(Identity::from("alice"), Identity::Known(Key::from("alice")));
/// assert_eq!(Identity::from(None::<Key>), Identity::Unknown);
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Identity {
    /// This key is charged.
    Known(Key),
    /// The client is unknown. [`Key::ANONYMOUS`] is charged, which all such requests share.
    Unknown,
    /// The request is not charged.
    Exempt,
    /// The request has no peer address, although the address is to be charged. This is a mistake in the
    /// set-up of the server, which all requests have. So the layer rejects the request with status 500,
    /// and says how to pass on the address: see [`ClientIp`](crate::by::ClientIp#the-address-of-the-peer).
    NoPeer,
}

impl Identity {
    /// Returns the key that is charged, or `None` if the request is [`Exempt`](Self::Exempt). For
    /// [`NoPeer`](Self::NoPeer) it is [`Key::ANONYMOUS`], but a layer rejects such a request before.
    #[must_use]
    pub(crate) fn key(self) -> Option<Key> {
        match self {
            Self::Known(key) => Some(key),
            Self::Unknown | Self::NoPeer => Some(Key::ANONYMOUS),
            Self::Exempt => None,
        }
    }

    /// Returns the other identity if this one is [`Unknown`](Self::Unknown) or
    /// [`NoPeer`](Self::NoPeer), and otherwise this one.
    #[must_use]
    pub fn or_else(self, other: impl FnOnce() -> Self) -> Self {
        match self {
            Self::Unknown | Self::NoPeer => other(),
            known => known,
        }
    }
}

impl<K: Into<Key>> From<K> for Identity {
    fn from(key: K) -> Self {
        Self::Known(key.into())
    }
}

impl<I: Into<Identity>> From<Option<I>> for Identity {
    /// Converts `None` to [`Identity::Unknown`].
    fn from(identity: Option<I>) -> Self {
        identity.map_or(Self::Unknown, Into::into)
    }
}

/// A conversion into an [`Identity`], for the results of extractors. Every type that converts into an
/// identity with [`Into`] has it, and no other type.
#[diagnostic::on_unimplemented(
    message = "an extractor cannot return `{Self}`",
    label = "the extractor returns `{Self}`",
    note = "an extractor returns a `Key`, a value that makes a key (such as a `String`, an integer or an \
            `IpAddr`), an `Option` of one of them, or an `Identity`",
    note = "an extractor is not asynchronous: to load the key from a database, use \
            the package `plimsoll-lookup`"
)]
pub trait IntoIdentity {
    /// Converts the value.
    fn into_identity(self) -> Identity;
}

#[diagnostic::do_not_recommend]
impl<I: Into<Identity>> IntoIdentity for I {
    fn into_identity(self) -> Identity {
        self.into()
    }
}
