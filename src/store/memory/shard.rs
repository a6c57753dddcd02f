//! One part of the embedded store: a small table of keys that is locked as a whole.
//!
//! Entries lie next to each other in one vector, so that sampling and sweeping are an index away;
//! a hash table of positions finds them. A shard stays small however many keys the store holds, so
//! nothing done under its lock takes longer in a larger store.

use hashbrown::{HashTable, hash_table::Entry as Slot};

use super::ledger::Ledger;
use crate::{
    algorithm::{Room, State},
    clock::Timestamp,
};

/// A policy, an algorithm and a key, as 128 bits of a keyed hash.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Digest(pub(super) u64, pub(super) u64);

#[derive(Debug)]
pub(super) struct Entry {
    digest: Digest,
    /// Until when this key turns charges away, as far as is known: it is not evicted before.
    blocked_until: Timestamp,
    pub(super) state: State,
}

impl Entry {
    /// Remembers that the key turns charges away until then.
    #[inline]
    pub(super) fn block(&mut self, until: Timestamp) {
        self.blocked_until = self.blocked_until.max(until);
    }
}

#[derive(Debug, Default)]
pub(super) struct Shard {
    entries: Vec<Entry>,
    positions: HashTable<u32>,
    /// The entry at which sweeping goes on.
    cursor: usize,
    /// Bytes of the two tables, as the ledger knows them.
    table_bytes: usize,
}

/// How many entries a newcomer looks at for one that has expired, and for one to evict; and how
/// many it evicts at most, when keys elsewhere hold the memory that it wants.
const SWEEP: usize = 2;
const SAMPLE: usize = 8;
const EVICTIONS: usize = 4;

impl Shard {
    pub(super) fn len(&self) -> usize {
        self.entries.len()
    }

    #[inline]
    pub(super) fn position(&self, digest: Digest) -> Option<usize> {
        let found = self.positions.find(digest.0, |&at| self.entries[at as usize].digest == digest);
        found.map(|&at| at as usize)
    }

    pub(super) fn state(&self, position: usize) -> &State {
        &self.entries[position].state
    }

    pub(super) fn entry(&mut self, position: usize) -> &mut Entry {
        &mut self.entries[position]
    }

    /// Adds a key. Whether there is room for it is for [`make_room`](Self::make_room) to say.
    pub(super) fn insert(&mut self, digest: Digest, state: State, ledger: &Ledger) -> usize {
        let position = self.entries.len();
        if position == self.entries.capacity() {
            // By small steps, so that little is held in reserve.
            self.entries.reserve_exact(position / 8 + 4);
        }
        ledger.count(0, state.heap_bytes());
        self.entries.push(Entry { digest, blocked_until: Timestamp::default(), state });
        let entries = &self.entries;
        self.positions
            .insert_unique(digest.0, position as u32, |&at| entries[at as usize].digest.0);
        self.recount(ledger);
        position
    }

    /// Removes a key; the last one takes its position.
    pub(super) fn remove(&mut self, position: usize, ledger: &Ledger) -> State {
        let digest = self.entries[position].digest;
        let entries = &self.entries;
        let hash = |&at: &u32| entries[at as usize].digest.0;
        if let Slot::Occupied(slot) =
            self.positions.entry(digest.0, |&at| at as usize == position, hash)
        {
            slot.remove();
        }
        let last = self.entries.len() - 1;
        if let Some(moved) =
            self.positions.find_mut(self.entries[last].digest.0, |&at| at as usize == last)
        {
            *moved = position as u32;
        }
        let state = self.entries.swap_remove(position).state;
        ledger.count(state.heap_bytes(), 0);
        if self.entries.capacity() > 32 && self.entries.len() < self.entries.capacity() / 4 {
            let half = self.entries.len() * 2;
            self.entries.shrink_to(half);
            let entries = &self.entries;
            self.positions.shrink_to(half, |&at| entries[at as usize].digest.0);
            self.recount(ledger);
        }
        state
    }

    /// Sweeps a little, then makes room for `newcomers` keys: drops what has expired, else the
    /// least spent of a sample, but nothing that is turning charges away, nor what `keep` names.
    /// Returns whether there is room.
    pub(super) fn make_room(
        &mut self,
        newcomers: usize,
        most: usize,
        now: Timestamp,
        keep: &[Digest],
        ledger: &Ledger,
    ) -> bool {
        self.sweep(now, keep, ledger);
        for _ in 0..EVICTIONS {
            if self.fits(newcomers, most, ledger) {
                return true;
            }
            let Some(victim) = self.victim(now, keep) else { return false };
            let state = self.remove(victim, ledger);
            if state.expires_at() > now {
                ledger.forgive(state.owed(now));
            }
        }
        self.fits(newcomers, most, ledger)
    }

    fn fits(&self, newcomers: usize, most: usize, ledger: &Ledger) -> bool {
        let unused = self.entries.capacity() - self.entries.len();
        let growth = if unused >= newcomers { 0 } else { newcomers * 2 * size_of::<Entry>() };
        self.entries.len() + newcomers <= most && ledger.allows(growth)
    }

    fn sweep(&mut self, now: Timestamp, keep: &[Digest], ledger: &Ledger) {
        for _ in 0..SWEEP.min(self.entries.len()) {
            self.cursor = if self.cursor < self.entries.len() { self.cursor } else { 0 };
            let entry = &self.entries[self.cursor];
            if entry.state.expires_at() <= now && !keep.contains(&entry.digest) {
                self.remove(self.cursor, ledger);
            } else {
                self.cursor += 1;
            }
        }
    }

    /// The least spent of a sample of entries that may go.
    fn victim(&mut self, now: Timestamp, keep: &[Digest]) -> Option<usize> {
        let len = self.entries.len();
        let start = self.cursor;
        self.cursor = if len == 0 { 0 } else { (start + SAMPLE) % len };
        (0..SAMPLE.min(len))
            .map(|step| (start + step) % len)
            .filter(|&position| {
                let entry = &self.entries[position];
                entry.blocked_until <= now && !keep.contains(&entry.digest)
            })
            .min_by_key(|&position| {
                let state = &self.entries[position].state;
                if state.expires_at() <= now { 0 } else { 1 + state.owed(now) }
            })
    }

    /// Tells the ledger when the tables have been resized.
    fn recount(&mut self, ledger: &Ledger) {
        let entries = self.entries.capacity() * size_of::<Entry>();
        let bytes = entries + self.positions.allocation_size();
        ledger.count(self.table_bytes, bytes);
        self.table_bytes = bytes;
    }
}
