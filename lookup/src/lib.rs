#![doc = include_str!("../docs/links.md")]
#![doc = include_str!("../README.md")]
#![cfg_attr(docsrs, feature(doc_cfg))]

mod layer;
mod rows;
mod service;
mod telemetry;

use std::sync::Arc;

use http::Extensions;

pub use self::{layer::LookupLayer, service::LookupService};

/// Returns the row that a [`LookupLayer`] has found for a request, from the extensions of the request.
///
/// A handler of axum may also take `Extension<Arc<T>>`.
#[must_use]
pub fn row<T: Send + Sync + 'static>(extensions: &Extensions) -> Option<&T> {
    extensions.get::<Arc<T>>().map(|row| &**row)
}

/// The mark in the extensions of a request whose row could not be loaded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LookupFailed;
