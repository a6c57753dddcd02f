//! A part of the embedded store: a small table of keys that is locked as a whole.
//!
//! Entries are in one vector, so that sampling and sweeping read consecutive memory. A shard stays
//! small however many keys the store holds, so that the time under its lock does not grow with the
//! store, and two threads rarely use the same shard. A shard and its lock fit one cache line.

use std::cmp::Reverse;

use super::{entry_id::EntryId, index::Index, usage::Usage};
use crate::{
    algorithm::{KeyState, MemoryBudget},
    clock::{Clock, Timestamp, micros_up},
    decision::Standing,
};

#[derive(Debug)]
pub(super) struct ShardEntry {
    /// The lower half of the [`EntryId`]; its upper half selects the shard. A new key is compared, by
    /// 64 bits of a keyed hash, with about 16 entries. With a probability of 2^-60 it finds the entry
    /// of another key. Clients cannot look for such keys, because the hash has a secret.
    id: u64,
    pub(super) rank: Rank,
    pub(super) state: KeyState,
}

#[derive(Debug, Default)]
pub(super) struct MemoryShard {
    entries: Vec<ShardEntry>,
    index: Index,
}

/// The number of entries that a new key checks for expiry.
const SWEEP_ENTRIES: usize = 2;
/// The number of entries that an eviction compares. A shard rarely holds more.
const SAMPLE_ENTRIES: usize = 32;

/// The entries that may be evicted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Eviction {
    /// An expired entry.
    Expired,
    /// An expired entry, or else the entry of the largest class that was checked least recently.
    Any,
}

impl MemoryShard {
    pub(super) fn position(&self, id: EntryId) -> Option<usize> {
        let entries = self.entries.as_slice();
        self.index.find(id.low, entries.len(), |at| entries[at].id == id.low)
    }

    /// Returns the time at which a request judges the entry at `position`: `now`, which it read before
    /// it locked the shard, unless the entry was checked later.
    ///
    /// A thread may wait for longer than a window between its reading of the clock and the lock. Then
    /// `now` would look like a clock that was set back, so the clock is read again.
    pub(super) fn time(
        &self,
        position: Option<usize>,
        now: Timestamp,
        clock: &dyn Clock,
    ) -> Timestamp {
        match position {
            Some(at) if self.entries[at].rank.checked_at() > now.as_micros() => clock.now(),
            _ => now,
        }
    }

    /// Returns the number of entries.
    pub(super) fn len(&self) -> usize {
        self.entries.len()
    }

    pub(super) fn entry(&mut self, position: usize) -> &mut ShardEntry {
        &mut self.entries[position]
    }

    /// Adds an entry. The caller has made room for it.
    pub(super) fn insert(&mut self, id: EntryId, state: KeyState, usage: &Usage) -> usize {
        let position = self.entries.len();
        let before = self.bytes();
        if position == self.entries.capacity() {
            // Grows in small steps, so that little memory is unused (`benches/memory.rs`).
            self.entries.reserve_exact(position / 16 + 1);
        }
        self.entries.push(ShardEntry { id: id.low, rank: Rank::default(), state });
        self.index.put(position, id.low);
        // A new state has nothing on the heap.
        usage.resize(before, self.bytes());
        usage.add_key();
        position
    }

    /// Removes an entry. The last entry moves to its position.
    pub(super) fn remove(&mut self, position: usize, usage: &Usage) -> KeyState {
        let before = self.bytes();
        let state = self.entries.swap_remove(position).state;
        if position < self.entries.len() {
            self.index.put(position, self.entries[position].id);
        }
        // If bytes are short, the place is freed at once.
        let spare = if usage.allows(0) { self.entries.len().max(8) } else { 0 };
        if self.entries.capacity() > 4 * spare {
            self.entries.shrink_to(self.entries.len() + spare);
            self.index.shrink(self.entries.len());
        }
        usage.resize(before + state.heap_bytes(), self.bytes());
        usage.remove_key();
        state
    }

    /// Evicts one entry of a sample that begins at `start`, and returns whether there was one to
    /// evict. Those in `keep` stay.
    ///
    /// An expired entry is evicted first. Of live ones, the largest class loses the entry that was checked
    /// least recently. The classes of the keys that are shut out lose one only if they have more than half
    /// of the places together, or if there are no other keys.
    pub(super) fn evict(
        &mut self,
        eviction: Eviction,
        start: usize,
        now: Timestamp,
        keep: &[EntryId],
        usage: &Usage,
    ) -> bool {
        let len = self.entries.len();
        // The new key has spent nothing yet, so it is one of the first class.
        let mut places = [0_u32; CLASSES];
        let mut total = 1;
        places[0] = 1;
        for position in sample(start, len) {
            places[self.entries[position].rank.class()] += 1;
            total += 1;
        }
        let is_above_half = 2 * places[SHUT_OUT..].iter().sum::<u32>() > total;
        let candidates = sample(start, len).filter(|&at| !is_in(keep, self.entries[at].id));
        let victim = candidates.min_by_key(|&position| {
            let ShardEntry { rank, state, .. } = &self.entries[position];
            let class = rank.class();
            let is_live = now < state.expires_at();
            let is_spared = (class >= SHUT_OUT) != is_above_half;
            (is_live, is_spared, Reverse(places[class]), class, rank.checked_at())
        });
        let Some(victim) = victim else { return false };
        let is_live = now < self.entries[victim].state.expires_at();
        if is_live && eviction == Eviction::Expired {
            return false;
        }
        let state = self.remove(victim, usage);
        if is_live {
            usage.count_eviction(state.outstanding(now));
        }
        true
    }

    /// Returns whether there is room for `new_keys` keys, in addition to the keys that are `expected`
    /// in other shards.
    pub(super) fn fits(&self, new_keys: usize, usage: &Usage, expected: usize) -> bool {
        let unused = self.entries.capacity() - self.entries.len();
        let growth = if unused >= new_keys { 0 } else { new_keys * 2 * size_of::<ShardEntry>() };
        usage.allows(growth) && usage.has_room_for_keys(expected + new_keys)
    }

    /// Checks a few entries from `start` on, and drops those that have expired.
    pub(super) fn sweep(&mut self, start: usize, now: Timestamp, keep: &[EntryId], usage: &Usage) {
        for step in 0..SWEEP_ENTRIES {
            let Some(position) = (start + step).checked_rem(self.entries.len()) else { return };
            let entry = &self.entries[position];
            if entry.state.expires_at() <= now && !is_in(keep, entry.id) {
                self.remove(position, usage);
            }
        }
    }

    /// Returns the size of the entries and the index in bytes.
    fn bytes(&self) -> usize {
        self.entries.capacity() * size_of::<ShardEntry>() + self.index.bytes()
    }
}

/// The class of a key at its last check, and the time of that check.
///
/// - A key that has units left is in a class by the part of its quota that it has spent. The part is
///   one of the key's own quota: 6 of 10 units are in the class of 60 of 100.
/// - A key without units left is shut out. It is in a class by the wait until a unit is free. So keys that
///   are shut out for a minute, of which anybody can make many, do not compete with a key that is
///   blocked for an hour.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Rank(u64);

/// The first class of the keys that are shut out. The one before it has the keys that have spent at
/// least a half of their quota, then a quarter, an eighth, and so on. The first of all has the keys that
/// have spent less than 1/64.
const SHUT_OUT: usize = 7;

/// The longest wait of a class is 2^`WAIT_BITS` times the longest wait of the class before.
const WAIT_BITS: u32 = 3;

/// The number of classes. A wait is a number of 64 bits.
const CLASSES: usize = SHUT_OUT + 1 + (u64::BITS / WAIT_BITS) as usize;

/// The number of bits of the time, which is below 2^53 microseconds.
const TIME_BITS: u32 = 53;

const _: () = assert!(CLASSES <= 1 << (u64::BITS - TIME_BITS), "a rank has room for the class");

impl Rank {
    /// Creates the rank of a key that has this standing after a check at `now`.
    pub(super) fn new(standing: &Standing, now: Timestamp) -> Self {
        let Standing { limit, remaining, next_after, .. } = *standing;
        let spent = limit.saturating_sub(remaining);
        // The number of times that the spent units have to be doubled to reach the limit.
        let doublings = spent.leading_zeros().saturating_sub(limit.leading_zeros());
        let reaches = spent.wrapping_shl(doublings) >= limit;
        let class = match (spent, remaining) {
            (0, _) => 0,
            (_, 0) => {
                let bits = u64::BITS - micros_up(next_after).leading_zeros();
                SHUT_OUT as u64 + u64::from(bits / WAIT_BITS)
            }
            _ => (SHUT_OUT as u64).saturating_sub(u64::from(doublings) + u64::from(!reaches)),
        };
        Self(class << TIME_BITS | now.as_micros())
    }

    /// Returns the class, less than [`CLASSES`].
    pub(super) fn class(self) -> usize {
        (self.0 >> TIME_BITS) as usize
    }

    /// Returns the time of the last check, in microseconds.
    pub(super) fn checked_at(self) -> u64 {
        self.0 & ((1 << TIME_BITS) - 1)
    }
}

/// Returns whether the entry with this lower half of an id may be one of `keep`.
fn is_in(keep: &[EntryId], low: u64) -> bool {
    keep.iter().any(|id| id.low == low)
}

/// Returns the positions of a sample of `len` entries from `start` on.
fn sample(start: usize, len: usize) -> impl Iterator<Item = usize> {
    (0..SAMPLE_ENTRIES.min(len)).map(move |step| (start % len + step) % len)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::{clock::ManualClock, quota::Algorithm};

    fn class(spent: u64, limit: u64) -> usize {
        let standing = Standing { remaining: limit - spent, ..Standing::full(limit) };
        let rank = Rank::new(&standing, Timestamp::MAX);
        assert_eq!(rank.checked_at(), Timestamp::MAX.as_micros());
        rank.class()
    }

    #[test]
    fn a_class_is_a_halving_of_the_quota() {
        for limit in (1..200).chain([1 << 20, (1 << 20) + 1, 1 << 31, (1 << 53) - 1]) {
            let spents = (0..=limit.min(200)).chain((0..20).map(|shift| limit >> shift));
            for spent in spents {
                let reaches = |halvings: &u32| u128::from(spent) << halvings >= u128::from(limit);
                let halvings = (0..7).find(reaches).unwrap_or(7);
                assert_eq!(class(spent, limit), 7 - halvings as usize, "{spent} of {limit}");
            }
        }
    }

    #[test]
    fn keys_that_are_shut_out_are_in_a_class_by_their_wait() {
        let waiting = |micros| {
            let next_after = Duration::from_micros(micros);
            let standing = Standing { remaining: 0, next_after, ..Standing::full(5) };
            Rank::new(&standing, Timestamp::MAX).class()
        };
        let minute = 60_000_000;
        assert_eq!(waiting(minute), waiting(minute / 2));
        assert!(waiting(minute) < waiting(60 * minute));
        assert!(class(4, 5) < waiting(0));
        assert!(waiting(u64::MAX) < CLASSES);
    }

    #[test]
    fn a_part_is_one_of_the_own_quota() {
        assert_eq!(class(60, 100), class(6, 10));
        assert!(class(6, 10) > class(20, 100));
        assert!(class(100, 100) > class(99, 100));
    }

    /// The bytes of a key are this size and what a shard has in spare places.
    #[test]
    fn an_entry_takes_64_bytes() {
        assert_eq!(size_of::<ShardEntry>(), 64);
    }

    fn add_keys(shard: &mut MemoryShard, usage: &Usage, count: u64) {
        for number in 0..count {
            let id = EntryId { low: number.wrapping_mul(0x9e37_79b9_7f4a_7c15), high: 0 };
            shard.insert(id, KeyState::new(Algorithm::FixedWindow), usage);
        }
    }

    /// A request may have waited for the lock since it read the clock.
    #[test]
    fn a_time_before_the_last_check_is_read_again() {
        let (mut shard, usage) = (MemoryShard::default(), Usage::new(10, usize::MAX));
        add_keys(&mut shard, &usage, 1);
        shard.entry(0).rank = Rank::new(&Standing::full(1), Timestamp::from_micros(5));
        let clock = ManualClock::at(9);
        let time = |position, now| shard.time(position, Timestamp::from_micros(now), &clock);
        assert_eq!([3, 7].map(|now| time(Some(0), now).as_micros()), [9, 7]);
        assert_eq!(time(None, 3).as_micros(), 3);
    }

    /// Moving the entries takes time under the lock, so a shard keeps its places for as long as a fourth of them
    /// is used.
    #[test]
    fn a_shard_frees_its_places_after_a_flood() {
        let (mut shard, usage) = (MemoryShard::default(), Usage::new(1_000, usize::MAX));
        add_keys(&mut shard, &usage, 500);
        while shard.len() > 0 {
            let before = shard.entries.capacity();
            shard.remove(shard.len() / 2, &usage);
            let (len, places) = (shard.len(), shard.entries.capacity());
            let is_wide = before > 4 * len.max(8);
            assert_eq!(places != before, is_wide, "{before} places, {places} for {len} keys");
            assert!(!is_wide || places >= 2 * len, "{places} places for {len} keys");
            assert!(shard.index.bytes() <= 100 + 64 * len, "{} bytes", shard.index.bytes());
            assert_eq!(usage.stats().bytes, shard.bytes());
        }
    }

    #[test]
    fn a_shard_keeps_no_spare_places_if_bytes_are_short() {
        let (mut shard, usage) = (MemoryShard::default(), Usage::new(1_000, 0));
        add_keys(&mut shard, &usage, 100);
        while shard.len() > 0 {
            shard.remove(0, &usage);
            assert_eq!(shard.entries.capacity(), shard.len());
        }
    }

    /// New keys fit if the bytes do of the places that they need, and of those that a shard adds in reserve.
    #[test]
    fn new_keys_fit_by_their_bytes_and_by_their_number() {
        let (mut shard, roomy) = (MemoryShard::default(), Usage::new(10, usize::MAX));
        add_keys(&mut shard, &roomy, 6);
        shard.entries.shrink_to_fit();
        assert!(shard.fits(4, &roomy, 0) && !shard.fits(5, &roomy, 0), "10 keys");
        assert!(shard.fits(1, &roomy, 3) && !shard.fits(1, &roomy, 4), "others are expected");
        for new_keys in [1, 3] {
            let growth = new_keys * 2 * size_of::<ShardEntry>();
            assert!(shard.fits(new_keys, &Usage::new(10, growth), 0));
            assert!(!shard.fits(new_keys, &Usage::new(10, growth - 1), 0));
        }
        shard.entries.reserve_exact(2);
        let full = Usage::new(10, 0);
        assert!(shard.fits(2, &full, 0) && !shard.fits(3, &full, 0), "2 places are unused");
    }

    #[test]
    fn a_sample_has_different_entries_and_each_entry_is_in_some() {
        for len in [1, 2, 31, 32, 33, 100] {
            let mut seen = vec![false; len];
            for start in (0..len).chain([usize::MAX >> 32]) {
                let mut positions: Vec<usize> = sample(start, len).collect();
                positions.iter().for_each(|&position| seen[position] = true);
                assert_eq!(positions.first(), Some(&(start % len)));
                positions.sort_unstable();
                positions.dedup();
                assert_eq!(positions.len(), len.min(SAMPLE_ENTRIES), "{len} from {start}");
            }
            assert!(seen.into_iter().all(|is_seen| is_seen), "{len} entries");
        }
        assert_eq!(sample(7, 0).count(), 0);
    }

    /// Uses more entries than have a tag, and many whose tags and hashes are equal.
    #[test]
    fn finds_every_key_that_is_there_and_no_other() {
        let (mut shard, usage) = (MemoryShard::default(), Usage::new(1_000, usize::MAX));
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
                    position.is_some_and(|at| shard.entries[at].id == id(*number).low)
                };
                assert!(present.iter().all(found), "after {turn} turns");
            }
            assert_eq!(usage.stats().keys, present.len());
            assert_eq!(usage.stats().bytes, shard.bytes());
        }
    }
}
