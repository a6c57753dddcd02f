//! The requests in which misuse is looked for.

use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

/// A counter of the first requests, shared by the clones of a layer or of an extractor.
#[derive(Debug, Default)]
pub(crate) struct FirstRequests(AtomicU32);

impl FirstRequests {
    /// The number of requests in which misuse is looked for.
    pub(crate) const COUNT: u32 = 1_000;

    /// Returns whether misuse is still looked for. It reads one atomic.
    #[inline]
    pub(crate) fn is_active(&self) -> bool {
        self.0.load(Relaxed) < Self::COUNT
    }

    /// Counts a request. Returns its number, beginning with 1.
    pub(crate) fn count(&self) -> u32 {
        self.0.fetch_add(1, Relaxed).saturating_add(1)
    }

    /// Ends the search.
    pub(crate) fn end(&self) {
        self.0.store(Self::COUNT, Relaxed);
    }
}
