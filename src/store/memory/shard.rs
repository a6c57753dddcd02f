//! One part of the embedded store: a small table of keys that is locked as a whole.
//!
//! Entries lie next to each other in one vector, so that sampling and sweeping are an index away.
//! A shard stays small however many keys the store holds: nothing done under its lock takes longer
//! in a larger store, and two threads rarely meet in one. Itself it fits two cache lines, with its
//! lock.

use super::{index::Index, ledger::Ledger};
use crate::{
    algorithm::{KeyState, MemoryBudget},
    clock::Timestamp,
};

/// A policy, an algorithm and a key, as 128 bits of a keyed hash.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Digest(pub(super) u64, pub(super) u64);

impl Digest {
    pub(super) fn to_u128(self) -> u128 {
        u128::from(self.0) << 64 | u128::from(self.1)
    }

    pub(super) fn from_u128(digest: u128) -> Self {
        Self((digest >> 64) as u64, digest as u64)
    }
}

#[derive(Debug)]
pub(super) struct Entry {
    digest: Digest,
    /// Until when this key turns charges away, as far as is known: it is not evicted before.
    blocked_until: Timestamp,
    pub(super) state: KeyState,
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
    index: Index,
}

/// The most keys in a shard: far more than ever come together by chance.
const MOST: usize = u16::MAX as usize;

/// How many entries a newcomer looks at for one that has expired, and for one to evict.
const SWEEP: usize = 2;
const SAMPLE: usize = 32;

/// Which keys may be evicted.
#[derive(Debug, Clone, Copy)]
pub(super) enum Victim {
    /// One that has got everything back.
    Expired,
    /// If there is none, the one that has spent least.
    LeastSpent,
}

impl Shard {
    #[inline]
    pub(super) fn position(&self, digest: Digest) -> Option<usize> {
        let entries = self.entries.as_slice();
        self.index.find(digest, entries.len(), |at| entries[at].digest == digest)
    }

    pub(super) fn state(&self, position: usize) -> &KeyState {
        &self.entries[position].state
    }

    pub(super) fn entry(&mut self, position: usize) -> &mut Entry {
        &mut self.entries[position]
    }

    /// Adds a key. Whether there is room for it is for [`fits`](Self::fits) to say.
    pub(super) fn insert(&mut self, digest: Digest, state: KeyState, ledger: &Ledger) -> usize {
        let (position, before) = (self.entries.len(), self.bytes());
        if position == self.entries.capacity() {
            // By small steps, so that little is held in reserve.
            self.entries.reserve_exact(position / 8 + 2);
        }
        self.entries.push(Entry { digest, blocked_until: Timestamp::default(), state });
        self.index.put(position, digest, |at| self.entries[at].digest);
        ledger.count(before, self.bytes() + self.entries[position].state.heap_bytes());
        ledger.enter();
        position
    }

    /// Removes a key; the last one takes its position.
    pub(super) fn remove(&mut self, position: usize, ledger: &Ledger) -> KeyState {
        let (before, last) = (self.bytes(), self.entries.len() - 1);
        self.index.remove(position, self.entries[position].digest);
        self.index.remove(last, self.entries[last].digest);
        let state = self.entries.swap_remove(position).state;
        if position < last {
            self.index.put(position, self.entries[position].digest, |at| self.entries[at].digest);
        }
        if self.entries.capacity() > 32 && self.entries.len() < self.entries.capacity() / 4 {
            self.entries.shrink_to(self.entries.len() * 2);
            self.index.shrink(|at| self.entries[at].digest);
        }
        ledger.count(before + state.heap_bytes(), self.bytes());
        ledger.leave();
        state
    }

    /// Evicts one key of a sample that begins at `start`; returns whether there was one. Nothing
    /// goes that is turning charges away, nor what `keep` names.
    pub(super) fn evict(
        &mut self,
        victim: Victim,
        start: usize,
        now: Timestamp,
        keep: &[Digest],
        ledger: &Ledger,
    ) -> bool {
        let len = self.entries.len();
        let sample = (0..SAMPLE.min(len)).map(|step| (start + step) % len);
        let may_go = sample.filter(|&position| {
            let Entry { digest, blocked_until, .. } = &self.entries[position];
            *blocked_until <= now && !keep.contains(digest)
        });
        let owed = |&position: &usize| {
            let state = &self.entries[position].state;
            if state.expires_at() <= now { 0 } else { 1 + state.outstanding(now) }
        };
        let least = may_go.map(|position| (owed(&position), position)).min();
        match (least, victim) {
            (Some((0, expired)), _) => drop(self.remove(expired, ledger)),
            (Some((_, live)), Victim::LeastSpent) => {
                let state = self.remove(live, ledger);
                ledger.forgive(state.outstanding(now));
            }
            _ => return false,
        }
        true
    }

    /// Whether there is room for so many keys, beside those that are expected elsewhere.
    pub(super) fn fits(&self, newcomers: usize, ledger: &Ledger, expected: usize) -> bool {
        let unused = self.entries.capacity() - self.entries.len();
        let growth = if unused >= newcomers { 0 } else { newcomers * 2 * size_of::<Entry>() };
        self.entries.len() + newcomers <= MOST
            && ledger.allows(growth)
            && ledger.admits(expected + newcomers)
    }

    /// Drops expired keys, of the few that it looks at.
    pub(super) fn sweep(&mut self, start: usize, now: Timestamp, keep: &[Digest], ledger: &Ledger) {
        for step in 0..SWEEP {
            let Some(position) = (start + step).checked_rem(self.entries.len()) else { return };
            let entry = &self.entries[position];
            if entry.state.expires_at() <= now && !keep.contains(&entry.digest) {
                self.remove(position, ledger);
            }
        }
    }

    /// Bytes of the two tables.
    fn bytes(&self) -> usize {
        self.entries.capacity() * size_of::<Entry>() + self.index.bytes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::quota::Algorithm;

    /// Far more than have a tag, and many whose tags and hashes are equal.
    #[test]
    fn finds_every_key_that_is_there_and_no_other() {
        let (mut shard, ledger) = (Shard::default(), Ledger::new(1_000, usize::MAX));
        // Mixed, as digests are, and so that keys come and go at all fill levels.
        let mix = |number: u64| number.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let digest = |number: u64| Digest(mix(number / 3), ((number % 5) << 56) | number);
        let mut there = Vec::new();
        for turn in 0..20_000_u64 {
            let number = (mix(turn) >> 40) % (100 + turn / 50);
            match shard.position(digest(number)) {
                Some(position) => {
                    assert!(there.contains(&number));
                    shard.remove(position, &ledger);
                    there.retain(|other| *other != number);
                }
                None => {
                    assert!(!there.contains(&number));
                    shard.insert(digest(number), KeyState::new(Algorithm::FixedWindow), &ledger);
                    there.push(number);
                }
            }
            if turn % 97 == 0 {
                let found = |number: &u64| {
                    let position = shard.position(digest(*number));
                    position.is_some_and(|at| shard.entries[at].digest == digest(*number))
                };
                assert!(there.iter().all(found), "after {turn} turns");
            }
            assert_eq!(ledger.keys(), there.len());
            assert_eq!(ledger.bytes(), shard.bytes());
        }
    }
}
