//! The counts of the keys of a policy.

use std::collections::HashMap;

use plimsoll::Key;

use super::sketch::Sketch;

/// The counts of the keys of a policy.
#[derive(Debug)]
pub(super) struct Counts {
    pub(super) denied: Sketch,
    pub(super) spent: Sketch,
    /// The minute of the last halving.
    minute: u64,
}

impl Counts {
    pub(super) fn new(capacity: usize, minute: u64) -> Self {
        Self { denied: Sketch::new(capacity), spent: Sketch::new(capacity), minute }
    }

    /// Halves the counts once for each minute since the last halving.
    pub(super) fn halve_until(&mut self, minute: u64) {
        // After the clock was set back, the counts stay until it has caught up.
        let times = minute.saturating_sub(self.minute);
        if times > 0 {
            self.denied.halve(times);
            self.spent.halve(times);
            self.minute = minute;
        }
    }

    /// Returns the denials and the units of each key.
    pub(super) fn by_key(&self) -> HashMap<Key, (u64, u64)> {
        let mut by_key = HashMap::<Key, (u64, u64)>::new();
        self.denied.counts().for_each(|(key, count)| by_key.entry(*key).or_default().0 = count);
        self.spent.counts().for_each(|(key, count)| by_key.entry(*key).or_default().1 = count);
        by_key
    }
}
