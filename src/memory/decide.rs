//! The decision on a check: lock, locate, check all charges, then commit all.

use smallvec::SmallVec;

use super::{
    MemoryStore,
    entry_id::EntryId,
    eviction::NewKeys,
    locked::{Location, LockedShards},
    rank::Rank,
    shard::MemoryShard,
    usage::Usage,
};
use crate::{
    algorithm::KeyState,
    clock::Timestamp,
    decision::{ChargeReply, Mark, Standing, Verdict},
    policy::Charge,
};

/// The kinds of decision.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Mode {
    Acquire,
    Peek,
    Force,
}

pub(super) type Replies = SmallVec<[ChargeReply; 1]>;

impl MemoryStore {
    #[inline(always)]
    pub(super) fn decide(&self, charges: &[Charge<'_>], now: Timestamp, mode: Mode) -> Replies {
        match charges {
            [charge] => SmallVec::from_buf([self.decide_one(charge, now, mode)]),
            _ => Replies::from_vec(self.decide_several(charges, now, mode)),
        }
    }

    /// Decides a charge that is alone in its check. `benches/check.rs` shows what this saves: there
    /// is one lock, one search and one pass, and all of it is compiled into the caller.
    #[inline(always)]
    pub(super) fn decide_one(
        &self,
        charge: &Charge<'_>,
        now: Timestamp,
        mode: Mode,
    ) -> ChargeReply {
        self.decide_entry(self.secret.entry(charge), charge, now, mode)
    }

    /// Decides a charge to this entry, which is alone in its check.
    #[inline(always)]
    pub(super) fn decide_entry(
        &self,
        id: EntryId,
        charge: &Charge<'_>,
        now: Timestamp,
        mode: Mode,
    ) -> ChargeReply {
        let number = self.shard_of(id);
        let mut shard = self.lock(number);
        let location = Location::in_shard(&shard, id);
        let now = shard.time(location.position, now, &*self.clock);
        if mode == Mode::Peek {
            return peek(&mut shard, charge, &location, now);
        }
        if location.position.is_none() && spends(charge, mode) {
            let new = NewKeys { shard: number, count: 1, elsewhere: 0, keep: &[id], now };
            self.make_room(&mut shard, new);
        }
        spend(&mut shard, &self.usage, charge, &location, now, mode)
    }

    /// Decides several charges. `benches/check.rs` (three policies in one check) measures this.
    ///
    /// Each reply is written to its place in the vector as soon as it is known. A reply that was first
    /// kept on the stack, because it may come from [`peek`] or [`spend`], would be copied with wider loads
    /// than the stores that wrote it, which stall the processor.
    #[inline(never)]
    fn decide_several(
        &self,
        charges: &[Charge<'_>],
        now: Timestamp,
        mode: Mode,
    ) -> Vec<ChargeReply> {
        let mut locked = LockedShards::new(self);
        locked.lock(charges);
        let now = locked.time(now);
        let admitted = mode == Mode::Force || locked.admit(charges, now);
        if admitted && mode != Mode::Peek {
            // Only charges that spend need room.
            locked.make_room(charges, now, mode);
        }
        let (shards, locations) = locked.entries();
        let lines = || charges.iter().zip(locations);
        let mut replies = Vec::with_capacity(charges.len());
        for (charge, location) in lines() {
            let shard = &mut shards[location.shard].guard;
            if mode == Mode::Peek || !admitted || charge.is_shadow() {
                replies.push(peek(shard, charge, location, now));
            } else {
                replies.push(spend(shard, &self.usage, charge, location, now, mode));
            }
        }
        if mode == Mode::Peek || !admitted || !charges.iter().any(Charge::is_shadow) {
            return replies;
        }
        // Shadows are spent last, so that they see the key as the other charges leave it.
        for ((charge, location), reply) in lines().zip(&mut replies) {
            if charge.is_shadow() {
                let shard = &mut shards[location.shard].guard;
                *reply = spend(shard, &self.usage, charge, location, now, mode);
            }
        }
        replies
    }
}

/// Returns whether a charge to a key that has spent nothing would spend something.
pub(super) fn spends(charge: &Charge<'_>, mode: Mode) -> bool {
    affordable(charge, mode, charge.quota().capacity()) > 0
}

/// Returns how many units the charge takes if `free` units are free.
#[inline]
fn affordable(charge: &Charge<'_>, mode: Mode, free: u64) -> u64 {
    match mode {
        Mode::Force => charge.cost(),
        _ if charge.cost() <= free => charge.max_cost().min(available(charge, free)),
        _ => 0,
    }
}

/// Returns how many of the `free` units the charge may take. A lease leaves half of those beyond its
/// cost to others.
#[inline]
fn available(charge: &Charge<'_>, free: u64) -> u64 {
    if charge.is_lease() { free - (free - charge.cost()).div_ceil(2) } else { free }
}

/// Returns the standing of the key without spending anything.
#[inline(always)]
fn peek(
    shard: &mut MemoryShard,
    charge: &Charge<'_>,
    location: &Location,
    now: Timestamp,
) -> ChargeReply {
    let Some(position) = location.position else {
        return unspent(charge, Standing::full(charge.quota().capacity()));
    };
    let entry = shard.entry(position);
    let standing = entry.state.standing(charge.quota(), now, charge.cost());
    entry.rank = Rank::new(&standing, now);
    unspent(charge, standing)
}

/// Spends the charge, unless too few units are free or it costs nothing.
#[inline(always)]
fn spend(
    shard: &mut MemoryShard,
    usage: &Usage,
    charge: &Charge<'_>,
    location: &Location,
    now: Timestamp,
    mode: Mode,
) -> ChargeReply {
    let position = match location.position {
        Some(position) => position,
        None => match new_entry(shard, usage, charge, location, mode) {
            Some(position) => position,
            None => return unspent(charge, Standing::full(charge.quota().capacity())),
        },
    };
    let entry = shard.entry(position);
    let affordable = |free| affordable(charge, mode, free);
    let (units, mark, standing) =
        entry.state.spend(charge.quota(), now, charge.cost(), affordable, usage);
    entry.rank = Rank::new(&standing, now);
    let verdict = if units > 0 { Verdict::Passed } else { verdict(charge, &standing) };
    ChargeReply { verdict, units, standing, mark }
}

/// Returns the position of an entry that was not there when the shards were locked, or `None` if the
/// charge needs none because it spends nothing.
#[inline(never)]
fn new_entry(
    shard: &mut MemoryShard,
    usage: &Usage,
    charge: &Charge<'_>,
    location: &Location,
    mode: Mode,
) -> Option<usize> {
    // An earlier charge of this check may have created the entry.
    shard.position(location.id).or_else(|| {
        let state = || KeyState::new(charge.quota().algorithm());
        spends(charge, mode).then(|| shard.insert(location.id, state(), usage))
    })
}

#[inline]
fn unspent(charge: &Charge<'_>, standing: Standing) -> ChargeReply {
    ChargeReply { verdict: verdict(charge, &standing), units: 0, standing, mark: Mark::default() }
}

#[inline]
fn verdict(charge: &Charge<'_>, standing: &Standing) -> Verdict {
    if charge.cost() <= standing.remaining {
        Verdict::Passed
    } else if charge.cost() > charge.quota().capacity() {
        Verdict::OverCapacity
    } else {
        Verdict::Refused
    }
}
