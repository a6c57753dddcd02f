//! The requests that are held until no earlier one is expected.

use std::{cmp::Reverse, collections::BinaryHeap};

use super::Entry;

/// The most requests that are held.
const MAX_HELD: usize = 65_536;
/// The most bytes of lines that are held.
const MAX_HELD_BYTES: usize = 64 * 1024 * 1024;

/// The requests that are held until no earlier one is expected, sorted by their time. Requests of the same time stay in
/// the order in which they were read.
#[derive(Debug, Default)]
pub(super) struct Window {
    /// Time, number and slot of each request that is held.
    held: BinaryHeap<Reverse<(u64, u64, usize)>>,
    slots: Vec<Entry>,
    free: Vec<usize>,
    bytes: usize,
    count: u64,
}

impl Window {
    /// Returns the time of the earliest request.
    pub(super) fn earliest(&self) -> Option<u64> {
        self.held.peek().map(|Reverse((at, ..))| *at)
    }

    pub(super) fn is_full(&self) -> bool {
        self.held.len() >= MAX_HELD || self.bytes >= MAX_HELD_BYTES
    }

    /// Returns a free slot and its entry.
    pub(super) fn slot(&mut self) -> (usize, &mut Entry) {
        let slot = self.free.pop().unwrap_or_else(|| {
            self.slots.push(Entry::default());
            self.slots.len() - 1
        });
        (slot, &mut self.slots[slot])
    }

    /// Returns a slot that is not used any more.
    pub(super) fn put_back(&mut self, slot: usize) {
        self.free.push(slot);
    }

    /// Holds the entry of a slot.
    pub(super) fn hold(&mut self, slot: usize) {
        let entry = &self.slots[slot];
        self.bytes += entry.held_bytes();
        self.held.push(Reverse((entry.at, self.count, slot)));
        self.count += 1;
    }

    /// Releases the earliest request, and returns its slot.
    pub(super) fn release(&mut self) -> Option<usize> {
        let Reverse((_, _, slot)) = self.held.pop()?;
        self.bytes -= self.slots[slot].held_bytes();
        Some(slot)
    }

    pub(super) fn entry(&mut self, slot: usize) -> &mut Entry {
        &mut self.slots[slot]
    }
}
