//! Combinations of two extractors.

use http::request::Parts;

use crate::key::{Identity, IntoIdentity, Key};

/// A trait that adds a second extractor, which is called if the first one finds no key.
///
/// The same text from both extractors is the same [`Key`]. If the first returns the
/// name of an authenticated user and the second a header that any client can write, a client can
/// spend the budget of a user. An address, as [`peer_ip`](super::peer_ip) returns it, never equals
/// a text.
///
/// # Examples
///
/// ```
/// use plimsoll::by::{self, Or};
///
/// let client = by::header("x-api-key").or(by::peer_ip());
/// ```
pub trait Or<K>: Sized {
    /// Charges the key that `other` returns if this extractor returns [`Identity::Unknown`] or
    /// [`Identity::NoPeer`].
    fn or<G, L>(self, other: G) -> impl Fn(&Parts) -> Identity + Clone + Send + Sync + 'static
    where
        G: Fn(&Parts) -> L + Clone + Send + Sync + 'static,
        L: IntoIdentity;
}

impl<F, K> Or<K> for F
where
    F: Fn(&Parts) -> K + Clone + Send + Sync + 'static,
    K: IntoIdentity,
{
    fn or<G, L>(self, other: G) -> impl Fn(&Parts) -> Identity + Clone + Send + Sync + 'static
    where
        G: Fn(&Parts) -> L + Clone + Send + Sync + 'static,
        L: IntoIdentity,
    {
        move |parts: &Parts| self(parts).into_identity().or_else(|| other(parts).into_identity())
    }
}

/// A trait that pairs the [`Key`]s of two extractors, such as an account at an
/// address.
///
/// # Examples
///
/// ```
/// use plimsoll::by::{self, And};
///
/// let login = by::header("x-account").and(by::peer_ip());
/// ```
pub trait And<K>: Sized {
    /// Charges the pair of both keys. If one of them is [`Identity::Exempt`], so is the pair.
    /// Otherwise, if one of them is [`Identity::NoPeer`] or [`Identity::Unknown`], so is the pair, in
    /// this order.
    fn and<G, L>(self, other: G) -> impl Fn(&Parts) -> Identity + Clone + Send + Sync + 'static
    where
        G: Fn(&Parts) -> L + Clone + Send + Sync + 'static,
        L: IntoIdentity;
}

impl<F, K> And<K> for F
where
    F: Fn(&Parts) -> K + Clone + Send + Sync + 'static,
    K: IntoIdentity,
{
    fn and<G, L>(self, other: G) -> impl Fn(&Parts) -> Identity + Clone + Send + Sync + 'static
    where
        G: Fn(&Parts) -> L + Clone + Send + Sync + 'static,
        L: IntoIdentity,
    {
        move |parts: &Parts| match (self(parts).into_identity(), other(parts).into_identity()) {
            (Identity::Exempt, _) | (_, Identity::Exempt) => Identity::Exempt,
            (Identity::Known(first), Identity::Known(second)) => {
                Identity::Known(Key::from((first, second)))
            }
            (Identity::NoPeer, _) | (_, Identity::NoPeer) => Identity::NoPeer,
            _ => Identity::Unknown,
        }
    }
}
