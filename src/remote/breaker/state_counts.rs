//! The number of breakers of a limiter in each state.

use std::sync::{
    Mutex, PoisonError,
    atomic::{AtomicUsize, Ordering},
};

use super::BreakerState;

/// The number of breakers in each state other than closed: open, half-open and recovering.
#[derive(Debug, Default)]
pub(super) struct StateCounts {
    counts: [AtomicUsize; 3],
    reporting: Mutex<()>,
}

impl StateCounts {
    /// Returns whether a breaker is not closed.
    #[inline]
    pub(super) fn any(&self) -> bool {
        self.counts.iter().any(|count| count.load(Ordering::Relaxed) > 0)
    }

    /// Counts the change of a breaker from one state to another.
    pub(super) fn change(&self, before: BreakerState, after: BreakerState) {
        if let Some(count) = self.count(before) {
            count.fetch_sub(1, Ordering::Relaxed);
        }
        if let Some(count) = self.count(after) {
            count.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Calls `report` with the [number](BreakerState::number) of the worst state of a breaker. Open is
    /// the worst, and recovering the least bad one.
    ///
    /// Reports are made one after the other, so the last one has the state of that time.
    pub(super) fn report_worst(&self, report: impl FnOnce(u8)) {
        let _reporting = self.reporting.lock().unwrap_or_else(PoisonError::into_inner);
        let is_reached = |count: &AtomicUsize| count.load(Ordering::Relaxed) > 0;
        report(self.counts.iter().position(is_reached).map_or(0, |index| index as u8 + 1));
    }

    fn count(&self, state: BreakerState) -> Option<&AtomicUsize> {
        self.counts.get(usize::from(state.number().checked_sub(1)?))
    }
}
