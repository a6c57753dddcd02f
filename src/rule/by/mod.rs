//! Extractors of the charged key, for [`Rule::new`](crate::Rule::new).
//!
//! Each function returns a closure over the head of a request, as an application could write it.
//! The closure returns an [`Identity`](crate::key::Identity). [`Or`] adds a second extractor for
//! requests without a key from the first. [`And`] pairs two keys.
//!
//! # Examples
//!
//! ```
//! use plimsoll::{Key, by::{self, And, Or}};
//!
//! let client = by::header("x-api-key").or(by::peer_ip());
//! let account_at_address = by::header("x-account").and(by::peer_ip());
//! let own = by::bearer_token().or(|parts: &http::request::Parts| {
//!     parts.uri.host().map(Key::from)
//! });
//! ```
//!
//! A request without a key is [`Identity::Unknown`](crate::key::Identity::Unknown). All such requests
//! share one key: a request does not become unlimited because a header is missing. Only a missing peer
//! address is [rejected](crate::key::Identity::NoPeer), because then all clients would share one key.

mod address;
mod client_ip;
mod combined;
mod forwarded;
mod head;
mod peer;

pub use client_ip::{ClientIp, client_ip, peer_ip};
pub use combined::{And, Or};
pub use head::{anonymous, bearer_token, constant, extension, header};
#[cfg(feature = "axum")]
pub use head::{matched_route, path_param};
pub(crate) use peer::MISSING_PEER;
