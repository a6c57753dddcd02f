//! Who is charged: ready-made extractors for [`Rule`](crate::Rule).
//!
//! Each function returns a closure over the head of a request, like one that you would write
//! yourself. [`Or`] joins two: the second is asked when the first cannot say.
//!
//! ```
//! use tollgate::{Key, by::{self, Or}};
//!
//! let client = by::header("x-api-key").or(|parts: &http::request::Parts| {
//!     parts.extensions.get::<std::net::IpAddr>().map(|address| Key::from(*address))
//! });
//! ```

mod header;
#[cfg(feature = "axum")]
mod peer_ip;

use http::request::Parts;

pub use header::header;
#[cfg(feature = "axum")]
pub use peer_ip::peer_ip;

use crate::key::Identity;

/// Joins extractors.
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
