//! A part of the embedded store: a small table of keys that is locked as a whole.
//!
//! Entries are in one vector, so that sampling and sweeping read consecutive memory. A shard stays
//! small however many keys the store holds, so that the time under its lock does not grow with the
//! store, and two threads rarely use the same shard. A shard and its lock fit one cache line.

use super::{entry_id::EntryId, index::Index, usage::Usage};
use crate::{
    algorithm::{KeyState, MemoryBudget},
    clock::Timestamp,
};

#[derive(Debug)]
pub(super) struct Entry {
    id: EntryId,
    /// The time until which this key is known to be denied. It is not evicted before.
    denied_until: Timestamp,
    pub(super) state: KeyState,
}

impl Entry {
    /// Records that the key is denied until `until`.
    #[inline]
    pub(super) fn deny_until(&mut self, until: Timestamp) {
        self.denied_until = self.denied_until.max(until);
    }
}

#[derive(Debug, Default)]
pub(super) struct Shard {
    entries: Vec<Entry>,
    index: Index,
}

/// The maximum number of keys in a shard. Chance never brings so many together.
const MAX_KEYS: usize = u16::MAX as usize;

/// The number of entries that a new key checks for expiry.
const SWEEP_ENTRIES: usize = 2;
/// The number of entries that are candidates for an eviction.
const SAMPLE_ENTRIES: usize = 32;

/// The entries that may be evicted.
#[derive(Debug, Clone, Copy)]
pub(super) enum Eviction {
    /// An expired entry.
    Expired,
    /// An expired entry, or else the entry that has spent least.
    LeastSpent,
}

impl Shard {
    #[inline]
    pub(super) fn position(&self, id: EntryId) -> Option<usize> {
        let entries = self.entries.as_slice();
        self.index.find(id, entries.len(), |at| entries[at].id == id)
    }

    pub(super) fn entry(&mut self, position: usize) -> &mut Entry {
        &mut self.entries[position]
    }

    /// Adds an entry. The caller has made sure that it [`fits`](Self::fits).
    pub(super) fn insert(&mut self, id: EntryId, state: KeyState, usage: &Usage) -> usize {
        let (position, before) = (self.entries.len(), self.bytes());
        if position == self.entries.capacity() {
            // Grows in small steps, so that little memory is unused (`benches/memory.rs`).
            self.entries.reserve_exact(position / 16 + 1);
        }
        self.entries.push(Entry { id, denied_until: Timestamp::default(), state });
        self.index.put(position, id, |at| self.entries[at].id);
        usage.resize(before, self.bytes() + self.entries[position].state.heap_bytes());
        usage.add_key();
        position
    }

    /// Removes an entry. The last entry moves to its position.
    pub(super) fn remove(&mut self, position: usize, usage: &Usage) -> KeyState {
        let (before, last) = (self.bytes(), self.entries.len() - 1);
        self.index.remove(position, self.entries[position].id);
        self.index.remove(last, self.entries[last].id);
        let state = self.entries.swap_remove(position).state;
        if position < last {
            self.index.put(position, self.entries[position].id, |at| self.entries[at].id);
        }
        if self.entries.capacity() > 32 && self.entries.len() < self.entries.capacity() / 4 {
            self.entries.shrink_to(self.entries.len() * 2);
            self.index.shrink(|at| self.entries[at].id);
        }
        usage.resize(before + state.heap_bytes(), self.bytes());
        usage.remove_key();
        state
    }

    /// Evicts one entry of a sample that begins at `start`, and returns whether present was one.
    /// Entries that deny charges and those in `keep` stay.
    pub(super) fn evict(
        &mut self,
        eviction: Eviction,
        start: usize,
        now: Timestamp,
        keep: &[EntryId],
        usage: &Usage,
    ) -> bool {
        let len = self.entries.len();
        let sample = (0..SAMPLE_ENTRIES.min(len)).map(|step| (start + step) % len);
        let candidates = sample.filter(|&position| {
            let Entry { id, denied_until, .. } = &self.entries[position];
            *denied_until <= now && !keep.contains(id)
        });
        let spent = |&position: &usize| {
            let state = &self.entries[position].state;
            if state.expires_at() <= now { 0 } else { 1 + state.outstanding(now) }
        };
        let least = candidates.map(|position| (spent(&position), position)).min();
        match (least, eviction) {
            (Some((0, expired)), _) => drop(self.remove(expired, usage)),
            (Some((_, live)), Eviction::LeastSpent) => {
                let state = self.remove(live, usage);
                usage.count_eviction(state.outstanding(now));
            }
            _ => return false,
        }
        true
    }

    /// Returns whether present is room for `new_keys` keys, in addition to the keys that are `expected`
    /// in other shards.
    pub(super) fn fits(&self, new_keys: usize, usage: &Usage, expected: usize) -> bool {
        let unused = self.entries.capacity() - self.entries.len();
        let growth = if unused >= new_keys { 0 } else { new_keys * 2 * size_of::<Entry>() };
        self.entries.len() + new_keys <= MAX_KEYS
            && usage.allows(growth)
            && usage.has_room_for_keys(expected + new_keys)
    }

    /// Checks a few entries from `start` on, and drops those that have expired.
    pub(super) fn sweep(&mut self, start: usize, now: Timestamp, keep: &[EntryId], usage: &Usage) {
        for step in 0..SWEEP_ENTRIES {
            let Some(position) = (start + step).checked_rem(self.entries.len()) else { return };
            let entry = &self.entries[position];
            if entry.state.expires_at() <= now && !keep.contains(&entry.id) {
                self.remove(position, usage);
            }
        }
    }

    /// Returns the size of the entries and the index in bytes.
    fn bytes(&self) -> usize {
        self.entries.capacity() * size_of::<Entry>() + self.index.bytes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::quota::Algorithm;

    /// Uses more entries than have a tag, and many whose tags and hashes are equal.
    #[test]
    fn finds_every_key_that_is_there_and_no_other() {
        let (mut shard, usage) = (Shard::default(), Usage::new(1_000, usize::MAX));
        // Mixes numbers like a hash, so that keys come and go at all fill levels.
        let mix = |number: u64| number.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let id = |number: u64| EntryId {
            low: ((number % 5) << 56) | (mix(number / 3) >> 8),
            high: number,
        };
        let mut present = Vec::new();
        for turn in 0..20_000_u64 {
            let number = (mix(turn) >> 40) % (100 + turn / 50);
            match shard.position(id(number)) {
                Some(position) => {
                    assert!(present.contains(&number));
                    shard.remove(position, &usage);
                    present.retain(|other| *other != number);
                }
                None => {
                    assert!(!present.contains(&number));
                    shard.insert(id(number), KeyState::new(Algorithm::FixedWindow), &usage);
                    present.push(number);
                }
            }
            if turn % 97 == 0 {
                let found = |number: &u64| {
                    let position = shard.position(id(*number));
                    position.is_some_and(|at| shard.entries[at].id == id(*number))
                };
                assert!(present.iter().all(found), "after {turn} turns");
            }
            assert_eq!(usage.stats().keys, present.len());
            assert_eq!(usage.stats().bytes, shard.bytes());
        }
    }
}
