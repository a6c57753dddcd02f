//! How newcomers to a full store find room.

use std::sync::{MutexGuard, TryLockError};

use super::{
    MemoryStore,
    shard::{Digest, Shard, Victim},
};
use crate::clock::Timestamp;

/// In how many other shards a newcomer looks for a key that can go, when its own has none.
const NEIGHBOURS: usize = 7;

impl MemoryStore {
    /// Sweeps a little, then makes room for `newcomers` keys in this shard, beside those that are
    /// expected in others: drops what has expired, else the least spent of a sample, but nothing
    /// that is turning charges away, nor what `keep` names. Returns whether there is room.
    pub(super) fn make_room(
        &self,
        number: usize,
        shard: &mut Shard,
        (newcomers, expected): (usize, usize),
        now: Timestamp,
        keep: &[Digest],
    ) -> bool {
        let ledger = &self.ledger;
        let fits = |shard: &Shard| shard.fits(newcomers, ledger, expected);
        // Digests are random, so they say where to look as well as any other number.
        let start = keep.first().map_or(0, |digest| (digest.1 >> 32) as usize);
        shard.sweep(start, now, keep, ledger);
        if fits(shard) {
            return true;
        }
        for victim in [Victim::Expired, Victim::LeastSpent] {
            for step in 0..=NEIGHBOURS {
                let evict = |shard: &mut Shard| shard.evict(victim, start, now, keep, ledger);
                let evicted = match step {
                    0 => evict(shard),
                    _ => self.try_lock(number + step).is_some_and(|mut other| evict(&mut other)),
                };
                if evicted && fits(shard) {
                    return true;
                }
            }
        }
        false
    }

    /// Another shard, unless it is in use; waiting for it while holding one could be forever.
    fn try_lock(&self, number: usize) -> Option<MutexGuard<'_, Shard>> {
        match self.shards[number & (self.shards.len() - 1)].0.try_lock() {
            Ok(shard) => Some(shard),
            Err(TryLockError::Poisoned(poisoned)) => Some(poisoned.into_inner()),
            Err(TryLockError::WouldBlock) => None,
        }
    }
}
