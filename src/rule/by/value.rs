//! By what the application knows: a constant, or what an earlier layer has found out.

use http::request::Parts;

use crate::key::{Identity, Key};

/// One key for everybody: a budget that all requests share.
pub fn constant(
    key: impl Into<Key>,
) -> impl Fn(&Parts) -> Identity + Clone + Send + Sync + 'static {
    let key = key.into();
    move |_: &Parts| Identity::Known(key)
}

/// What an earlier layer, such as authentication, has left in the request's extensions. Requests
/// without a `T` are [`Identity::Unknown`].
///
/// ```
/// use tollgate::by;
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
    K: Into<Identity>,
{
    move |parts: &Parts| {
        parts.extensions.get::<T>().map_or(Identity::Unknown, |value| key(value).into())
    }
}
