//! The count that a handler keeps of the cost of its response.

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering},
};

/// A count of units that a handler keeps while the body of its response streams.
///
/// The handler inserts a clone into the extensions of the response. A [`Rule`](crate::Rule) with
/// [`settle_tally`](crate::Rule::settle_tally) charges an estimate, its
/// [`cost`](crate::Rule::cost), before the request. When the body has ended, it charges or refunds
/// the difference to the count. Clones share the count.
///
/// # Examples
///
/// A handler that knows the cost before it responds:
///
/// ```
/// use axum::{Extension, Router, routing::get};
/// use plimsoll::{Limiter, Policy, Quota, RateLimitLayer, Rule, Tally, by};
///
/// async fn report() -> (Extension<Tally>, String) {
///     let tally = Tally::new();
///     tally.add(120); // rows read
///     (Extension(tally), "120 rows".to_owned())
/// }
///
/// let rows = Policy::new("rows", Quota::per_minute(100_000))?;
/// let rule = Rule::new(rows, by::header("x-api-key")).cost(|_| 500).settle_tally();
/// let layer = RateLimitLayer::new(Limiter::in_memory(), rule);
/// let app: Router = Router::new().route("/report", get(report)).layer(layer);
/// # Ok::<(), plimsoll::Error>(())
/// ```
///
/// A stream that counts while it runs. The response carries one clone, and the stream owns another:
///
/// ```
/// use http::Response;
/// use plimsoll::Tally;
///
/// let tally = Tally::new();
/// let counter = tally.clone();
/// let chunks = ["to", "ken", "s"].into_iter().inspect(move |_| counter.add(1));
///
/// let mut response = Response::new(());
/// response.extensions_mut().insert(tally.clone());
/// assert_eq!(chunks.count(), 3);
/// assert_eq!(tally.units(), 3);
/// ```
#[derive(Debug, Clone, Default)]
pub struct Tally(Arc<AtomicU64>);

impl Tally {
    /// Creates a count of 0 units.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds `units` to the count, which saturates at [`u64::MAX`].
    pub fn add(&self, units: u64) {
        let add = |counted: u64| Some(counted.saturating_add(units));
        let _ = self.0.fetch_update(Ordering::Relaxed, Ordering::Relaxed, add);
    }

    /// Returns the units counted so far.
    #[must_use]
    pub fn units(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}
