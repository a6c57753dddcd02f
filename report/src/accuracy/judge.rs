//! The exact rule, as naively as it can be written: the times of all admitted units, counted again for
//! each request. It shares no code with the crate.

/// The units that were admitted for a key, and the times at which they were.
#[derive(Debug, Default)]
pub(crate) struct Judge {
    /// The time of each unit in microseconds, in order.
    admitted: Vec<u64>,
    /// The most units of any window so far.
    fullest: u64,
}

impl Judge {
    /// Returns the units that were admitted in the window (now - window, now].
    fn units_in_window(&self, now: u64, window: u64) -> u64 {
        self.admitted.iter().rev().take_while(|time| **time + window > now).count() as u64
    }

    /// Returns whether one more unit at this time keeps the window within the limit.
    pub(crate) fn has_room(&self, now: u64, limit: u64, window: u64) -> bool {
        self.units_in_window(now, window) < limit
    }

    /// Records a unit. Times do not decrease.
    pub(crate) fn admit(&mut self, now: u64, window: u64) {
        assert!(self.admitted.last().is_none_or(|last| *last <= now), "in order");
        self.admitted.push(now);
        // A window is fullest when a unit was just admitted at its end.
        self.fullest = self.fullest.max(self.units_in_window(now, window));
    }

    /// Returns the number of all admitted units.
    pub(crate) fn total(&self) -> u64 {
        self.admitted.len() as u64
    }

    /// Returns the units of the fullest window.
    pub(crate) fn fullest(&self) -> u64 {
        self.fullest
    }
}

#[cfg(test)]
mod tests {
    use super::Judge;

    #[test]
    fn a_unit_leaves_after_exactly_one_window() {
        let mut judge = Judge::default();
        judge.admit(100, 50);
        judge.admit(120, 50);
        assert!(!judge.has_room(149, 2, 50));
        assert!(judge.has_room(150, 2, 50));
        judge.admit(150, 50);
        assert_eq!((judge.total(), judge.fullest()), (3, 2));
    }
}
