//! Two extractors made into one.

use http::request::Parts;

use crate::key::Identity;

/// Asks a second extractor when the first cannot say.
///
/// The same text is the same key from either: if the first says a user's name that was checked, and
/// the second a header that anybody may write, strangers spend for users. An address, as
/// [`peer_ip`](super::peer_ip) says it, differs from any text.
pub trait Or<K>: Sized {
    /// Asks `other` about requests of which this extractor says [`Identity::Unknown`].
    fn or<G, L>(self, other: G) -> impl Fn(&Parts) -> Identity + Clone + Send + Sync + 'static
    where
        G: Fn(&Parts) -> L + Clone + Send + Sync + 'static,
        L: Into<Identity>;
}

impl<F, K> Or<K> for F
where
    F: Fn(&Parts) -> K + Clone + Send + Sync + 'static,
    K: Into<Identity>,
{
    fn or<G, L>(self, other: G) -> impl Fn(&Parts) -> Identity + Clone + Send + Sync + 'static
    where
        G: Fn(&Parts) -> L + Clone + Send + Sync + 'static,
        L: Into<Identity>,
    {
        move |parts: &Parts| self(parts).into().or_else(|| other(parts).into())
    }
}

/// Makes one key out of two, such as an account at an address.
pub trait And<K>: Sized {
    /// The pair of both keys. [`Identity::Exempt`] if one of them is, else [`Identity::Unknown`]
    /// if one of them is.
    fn and<G, L>(self, other: G) -> impl Fn(&Parts) -> Identity + Clone + Send + Sync + 'static
    where
        G: Fn(&Parts) -> L + Clone + Send + Sync + 'static,
        L: Into<Identity>;
}

impl<F, K> And<K> for F
where
    F: Fn(&Parts) -> K + Clone + Send + Sync + 'static,
    K: Into<Identity>,
{
    fn and<G, L>(self, other: G) -> impl Fn(&Parts) -> Identity + Clone + Send + Sync + 'static
    where
        G: Fn(&Parts) -> L + Clone + Send + Sync + 'static,
        L: Into<Identity>,
    {
        move |parts: &Parts| match (self(parts).into(), other(parts).into()) {
            (Identity::Exempt, _) | (_, Identity::Exempt) => Identity::Exempt,
            (Identity::Known(first), Identity::Known(second)) => {
                Identity::Known(first.paired(&second))
            }
            _ => Identity::Unknown,
        }
    }
}
