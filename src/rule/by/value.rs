//! Keys from the application: a constant, or an extension that an earlier layer inserts.

use http::request::Parts;

use crate::key::{Identity, IntoIdentity, Key};

/// Charges one [`Key`] for all requests, so that they share one budget.
pub fn constant(
    key: impl Into<Key>,
) -> impl Fn(&Parts) -> Identity + Clone + Send + Sync + 'static {
    let key = key.into();
    move |_: &Parts| Identity::Known(key)
}

/// Charges [`Key::ANONYMOUS`], the key that all unidentified clients share.
///
/// # Examples
///
/// A server on a Unix socket, whose requests have no peer address. Without the last part, they would be
/// [rejected](Identity::NoPeer):
///
/// ```
/// use plimsoll::by::{self, Or};
///
/// let client = by::peer_ip().or(by::anonymous());
/// ```
pub fn anonymous() -> impl Fn(&Parts) -> Identity + Clone + Send + Sync + 'static {
    constant(Key::ANONYMOUS)
}

/// Charges the [`Key`] that `key` returns for the `T` in the extensions of the request. An earlier
/// layer, such as authentication, inserts the `T`. Requests without it are [`Identity::Unknown`].
///
/// # Examples
///
/// ```
/// use plimsoll::by;
///
/// #[derive(Clone)]
/// struct User { id: u64 }
///
/// let user = by::extension(|user: &User| user.id);
/// ```
pub fn extension<T, F, K>(key: F) -> impl Fn(&Parts) -> Identity + Clone + Send + Sync + 'static
where
    T: Send + Sync + 'static,
    F: Fn(&T) -> K + Clone + Send + Sync + 'static,
    K: IntoIdentity,
{
    move |parts: &Parts| {
        parts.extensions.get::<T>().map_or(Identity::Unknown, |value| key(value).into_identity())
    }
}
