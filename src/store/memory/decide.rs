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
            _ => self.decide_several(charges, now, mode),
        }
    }

    /// Decides a charge that is alone in its check. `benches/check.rs` shows what this saves: there
    /// is one lock, one lookup and one pass, and all of it is compiled into the caller.
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

    #[inline(never)]
    fn decide_several(&self, charges: &[Charge<'_>], now: Timestamp, mode: Mode) -> Replies {
        let (mut locked, mut locations) = LockedShards::lock(self, charges);
        let now = locked.time(&locations, now);
        let admitted = mode == Mode::Force || locked.admit(charges, &locations, now);
        if admitted && mode != Mode::Peek {
            // Only charges that spend need room.
            locked.make_room(charges, &mut locations, now, mode);
        }
        let mut replies = Vec::with_capacity(charges.len());
        let lines = || charges.iter().zip(&locations);
        for (charge, location) in lines() {
            let shard = locked.shard(location);
            replies.push(if mode == Mode::Peek || !admitted || charge.is_shadow() {
                peek(shard, charge, location, now)
            } else {
                spend(shard, &self.usage, charge, location, now, mode)
            });
        }
        if mode == Mode::Peek || !admitted || !charges.iter().any(Charge::is_shadow) {
            return Replies::from_vec(replies);
        }
        // Shadows are spent last, so that they see the key as the other charges leave it.
        for ((charge, location), reply) in lines().zip(&mut replies) {
            if charge.is_shadow() {
                let shard = locked.shard(location);
                *reply = spend(shard, &self.usage, charge, location, now, mode);
            }
        }
        Replies::from_vec(replies)
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
    let quota = charge.quota();
    // An earlier charge of this check may have created the entry.
    let position = match location.position.or_else(|| shard.position(location.id)) {
        Some(position) => position,
        None if spends(charge, mode) => {
            shard.insert(location.id, KeyState::new(quota.algorithm()), usage)
        }
        None => return unspent(charge, Standing::full(quota.capacity())),
    };
    let entry = shard.entry(position);
    let affordable = |free| affordable(charge, mode, free);
    let (units, mark, standing) = entry.state.spend(quota, now, charge.cost(), affordable, usage);
    entry.rank = Rank::new(&standing, now);
    let verdict = if units > 0 { Verdict::Passed } else { verdict(charge, &standing) };
    ChargeReply { verdict, units, standing, mark }
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
