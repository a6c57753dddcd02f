//! Who is charged: ready-made extractors for [`Rule`](crate::Rule).
//!
//! Each function returns a closure over the head of a request, like one that you would write
//! yourself. [`Or`] asks a second when the first cannot say; [`And`] makes one key out of two.
//!
//! ```
//! use tollgate::{Key, by::{self, And, Or}};
//!
//! let client = by::header("x-api-key").or(by::peer_ip());
//! let account_at_address = by::header("x-account").and(by::peer_ip());
//! let own = by::bearer_token().or(|parts: &http::request::Parts| {
//!     parts.uri.host().map(Key::from)
//! });
//! ```
//!
//! A request of which an extractor cannot say who sent it is
//! [`Identity::Unknown`](crate::Identity::Unknown): all such requests share one key. Nobody is
//! unlimited because a header is missing.

mod address;
mod cidr;
mod client_ip;
mod credentials;
mod forwarded;
mod join;
#[cfg(feature = "axum")]
mod matched_route;
#[cfg(feature = "axum")]
mod path_param;
mod peer;
mod value;

pub use client_ip::{ClientIp, client_ip, peer_ip};
pub use credentials::{bearer_token, header};
pub use join::{And, Or};
#[cfg(feature = "axum")]
pub use matched_route::matched_route;
#[cfg(feature = "axum")]
pub use path_param::path_param;
pub use value::{constant, extension};
