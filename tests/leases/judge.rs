//! The judge of real processes: an admitted check used its units at some time between two stamps.

use std::{cmp::Reverse, collections::BinaryHeap};

#[derive(Debug, Default)]
pub(crate) struct Judge {
    /// The stamps after and before each check, and its units.
    uses: Vec<(u64, u64, u64)>,
}

impl Judge {
    pub(crate) fn add(&mut self, before: u64, after: u64, units: u64) {
        self.uses.push((after, before, units));
    }

    /// Returns the number of units, and the most that were surely used in one trailing window. A unit surely is
    /// if both of its stamps lie inside.
    pub(crate) fn fullest_window(mut self, window: u64) -> (u64, u64) {
        self.uses.sort_unstable();
        let (mut total, mut inside, mut fullest) = (0, 0, 0);
        let mut earliest = BinaryHeap::new();
        for (after, before, units) in self.uses {
            total += units;
            inside += units;
            earliest.push(Reverse((before, units)));
            while let Some(Reverse((before, units))) = earliest.peek().copied() {
                if before + window > after {
                    break;
                }
                inside -= units;
                earliest.pop();
            }
            fullest = fullest.max(inside);
        }
        (total, fullest)
    }
}

#[test]
fn only_units_between_two_stamps_in_a_window_count() {
    let mut judge = Judge::default();
    for (before, after, units) in [(0, 1, 5), (2, 4, 1), (10, 11, 2), (3, 13, 4), (12, 13, 8)] {
        judge.add(before, after, units);
    }
    // (3, 13]: the check that began at 3 may have used its units at 3.
    assert_eq!(judge.fullest_window(10), (20, 10));
}
