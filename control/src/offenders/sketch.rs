//! The most frequent keys of a stream, in bounded memory.

use std::collections::HashMap;

use plimsoll::Key;

/// A space-saving sketch (Metwally, Agrawal and El Abbadi, "Efficient computation of frequent and top-k
/// elements in data streams", 2005).
///
/// Each key that was added has a slot, until all slots are taken. Then a new key takes the slot with the
/// smallest count, and adds to that count. So a count is never too small, a key is in the sketch if it has
/// more than one in [`capacity`](Self::new) of all units, and no count is too large by more than that.
#[derive(Debug)]
pub(super) struct Sketch {
    slots: Vec<Slot>,
    index: HashMap<Key, u32>,
    capacity: usize,
    /// No slot has a smaller count.
    min: u64,
    /// All slots before this one have larger counts than `min`.
    next: usize,
}

#[derive(Debug, Clone, Copy)]
struct Slot {
    key: Key,
    count: u64,
    /// The count of the key that had the slot before: how much of `count` may belong to other keys.
    error: u64,
}

impl Sketch {
    pub(super) fn new(capacity: usize) -> Self {
        Self { slots: Vec::new(), index: HashMap::new(), capacity, min: 0, next: 0 }
    }

    /// Adds units to a key.
    pub(super) fn add(&mut self, key: &Key, units: u64) {
        if let Some(place) = self.index.get(key) {
            let slot = &mut self.slots[*place as usize];
            slot.count = slot.count.saturating_add(units);
        } else if self.slots.len() < self.capacity {
            self.index.insert(*key, self.slots.len() as u32);
            self.slots.push(Slot { key: *key, count: units, error: 0 });
        } else if let Some(place) = self.smallest() {
            let slot = &mut self.slots[place];
            self.index.remove(&slot.key);
            self.index.insert(*key, place as u32);
            let error = slot.count;
            *slot = Slot { key: *key, count: error.saturating_add(units), error };
        }
    }

    /// Halves all counts so many times, and forgets the keys without a count.
    pub(super) fn halve(&mut self, times: u64) {
        let shift = times.min(63) as u32;
        self.slots.retain_mut(|slot| {
            (slot.count, slot.error) = (slot.count >> shift, slot.error >> shift);
            slot.count > 0
        });
        self.index.clear();
        self.index.extend(self.slots.iter().zip(0..).map(|(slot, place)| (slot.key, place)));
        (self.min, self.next) = (0, 0);
    }

    /// Returns the keys with their counts, without the part that may belong to other keys.
    pub(super) fn counts(&self) -> impl Iterator<Item = (&Key, u64)> {
        self.slots.iter().map(|slot| (&slot.key, slot.count - slot.error)).filter(|it| it.1 > 0)
    }

    /// Returns the place of a slot with the smallest count. Counts only grow between two halvings, so one
    /// pass over the slots finds all that have the same smallest count.
    fn smallest(&mut self) -> Option<usize> {
        let mut slots = self.slots.get(self.next..)?.iter();
        if let Some(place) = slots.position(|slot| slot.count <= self.min) {
            self.next += place;
            return Some(self.next);
        }
        self.min = self.slots.iter().map(|slot| slot.count).min()?;
        self.next = self.slots.iter().position(|slot| slot.count == self.min)?;
        Some(self.next)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use super::*;

    /// A generator of numbers: xorshift.
    fn next(state: &mut u64) -> u64 {
        *state ^= *state << 13;
        *state ^= *state >> 7;
        *state ^= *state << 17;
        *state
    }

    #[test]
    fn every_frequent_key_is_found_and_no_count_is_too_large() {
        for seed in 1..=20_u64 {
            let (mut state, mut sketch) = (seed, Sketch::new(20));
            let (mut exact, mut total) = (HashMap::<u64, u64>::new(), 0);
            for _ in 0..20_000 {
                // Some keys are frequent, and most are not.
                let key = match next(&mut state) % 10 {
                    0..5 => next(&mut state) % 7,
                    _ => next(&mut state) % 5_000,
                };
                let units = 1 + next(&mut state) % 5;
                sketch.add(&Key::from(key), units);
                *exact.entry(key).or_default() += units;
                total += units;
            }
            assert_eq!((sketch.slots.len(), sketch.index.len()), (20, 20));
            let slots: HashMap<_, _> = sketch.slots.iter().map(|slot| (slot.key, slot)).collect();
            for (key, count) in exact {
                let slot = slots.get(&Key::from(key));
                assert!(slot.is_some() || count <= total / 20, "seed {seed}: {key} {count}");
                let Some(slot) = slot else { continue };
                assert!(slot.count >= count && slot.count - slot.error <= count, "seed {seed}");
                assert!(slot.error <= total / 20, "seed {seed}");
            }
        }
    }

    #[test]
    fn the_smallest_slot_is_taken() {
        let mut sketch = Sketch::new(3);
        for (key, units) in [(1, 5), (2, 2), (3, 4), (4, 1), (5, 1), (6, 1)] {
            sketch.add(&Key::from(key), units);
        }
        // 4 took the slot of 2, 5 the slot of 4, and 6 the slot of 5, which had as many units as 3.
        let mut counts: Vec<_> = sketch.slots.iter().map(|slot| (slot.count, slot.error)).collect();
        counts.sort_unstable();
        assert_eq!(counts, [(4, 0), (5, 0), (5, 4)]);
        sketch.halve(1);
        assert_eq!(sketch.slots.iter().map(|slot| slot.count).sum::<u64>(), 2 + 2 + 2);
        sketch.halve(2);
        assert!(sketch.slots.is_empty() && sketch.index.is_empty());
    }
}
