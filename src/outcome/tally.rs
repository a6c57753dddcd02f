//! A count that a handler keeps of what a response really costs.

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering},
};

/// What a response really costs, counted by the handler while the body streams.
///
/// The handler puts a clone into the response's extensions, and a rule with
/// [`settle_tally`](crate::Rule::settle_tally) settles what it says when the body has ended.
/// Clones share the count.
#[derive(Debug, Clone, Default)]
pub struct Tally(Arc<AtomicU64>);

impl Tally {
    /// A count of 0 units.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds units.
    pub fn add(&self, units: u64) {
        let add = |counted: u64| Some(counted.saturating_add(units));
        let _ = self.0.fetch_update(Ordering::Relaxed, Ordering::Relaxed, add);
    }

    /// Units so far.
    #[must_use]
    pub fn units(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}
