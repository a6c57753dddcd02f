//! The number of breakers of a limiter in each state.

use std::sync::atomic::{AtomicUsize, Ordering};

use super::BreakerState;

/// The number of breakers in each state other than closed: open, half-open and recovering.
#[derive(Debug, Default)]
pub(super) struct StateCounts([AtomicUsize; 3]);

impl StateCounts {
    /// Returns whether a breaker is not closed.
    #[inline]
    pub(super) fn any(&self) -> bool {
        self.0.iter().any(|count| count.load(Ordering::Relaxed) > 0)
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

    /// Returns the [number](BreakerState::number) of the worst state of a breaker. Open is the
    /// worst, and recovering the least bad one.
    pub(super) fn worst(&self) -> u8 {
        let is_reached = |count: &AtomicUsize| count.load(Ordering::Relaxed) > 0;
        self.0.iter().position(is_reached).map_or(0, |index| index as u8 + 1)
    }

    fn count(&self, state: BreakerState) -> Option<&AtomicUsize> {
        self.0.get(usize::from(state.number().checked_sub(1)?))
    }
}
