//! Adjustments of a charge by the response.

use std::sync::Arc;

use http::response;

/// An adjustment of a charge by the response to its request.
#[derive(Clone)]
pub(crate) enum Adjustment {
    /// Refunds the charge if the closure accepts the head of the response.
    RefundIf(Arc<dyn Fn(&response::Parts) -> bool + Send + Sync>),
    /// Settles the charge to a function of the length of the body, when the body has ended.
    CostOfBody(Arc<dyn Fn(u64) -> u64 + Send + Sync>),
    /// Settles the charge to the count of a [`Tally`](crate::Tally), when the body has ended.
    SettleTally,
}
