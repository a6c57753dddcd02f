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
        let of_min = |slot: &Slot| slot.count <= self.min;
        if let Some(place) = self.slots.get(self.next..)?.iter().position(of_min) {
            self.next += place;
            return Some(self.next);
        }
        self.min = self.slots.iter().map(|slot| slot.count).min()?;
        self.next = self.slots.iter().position(|slot| slot.count == self.min)?;
        Some(self.next)
    }
}
