//! The decision on a check: lock, locate, check all charges, then commit all.

use smallvec::SmallVec;

use super::{
    entry_id::EntryId,
    locked::{Location, LockedShards},
    shard::{MemoryShard, Rank},
    shards::{NewKeys, Shards},
    usage::Usage,
};
use crate::{
    algorithm::KeyState,
    clock::Timestamp,
    decision::{ChargeReply, Mark, Standing, Verdict},
    policy::Charge,
};

pub(super) type Replies = SmallVec<[ChargeReply; 1]>;

/// The kinds of decision.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Mode {
    Acquire,
    Peek,
    Force,
}

impl Mode {
    /// Returns whether a charge to a key that has spent nothing would spend something.
    pub(super) fn spends(self, charge: &Charge<'_>) -> bool {
        self.affordable(charge, charge.quota().capacity()) > 0
    }

    /// Returns how many units the charge takes if `free` units are free.
    #[inline]
    pub(super) fn affordable(self, charge: &Charge<'_>, free: u64) -> u64 {
        match self {
            Self::Force => charge.cost(),
            Self::Acquire | Self::Peek if charge.cost() <= free => {
                charge.max_cost().min(available(charge, free))
            }
            Self::Acquire | Self::Peek => 0,
        }
    }
}

/// Returns how many of the `free` units the charge may take. A lease leaves half of those beyond its
/// cost to others.
#[inline]
fn available(charge: &Charge<'_>, free: u64) -> u64 {
    if charge.is_lease() { free - (free - charge.cost()).div_ceil(2) } else { free }
}

pub(super) fn decide(
    shards: &Shards,
    charges: &[Charge<'_>],
    now: Timestamp,
    mode: Mode,
) -> Replies {
    match charges {
        [charge] => {
            let id = shards.secret.entry(charge);
            SmallVec::from_buf([decide_entry(shards, id, charge, now, mode)])
        }
        _ => Replies::from_vec(decide_several(shards, charges, now, mode)),
    }
}

/// Decides a charge to this entry, which is alone in its check. `benches/check.rs` (one charge) shows what this
/// saves: there is one lock, one search and one pass.
#[inline]
pub(super) fn decide_entry(
    shards: &Shards,
    id: EntryId,
    charge: &Charge<'_>,
    now: Timestamp,
    mode: Mode,
) -> ChargeReply {
    let number = shards.shard_of(id);
    let mut shard = shards.lock(number);
    let location = Location::in_shard(&shard, id);
    let now = shard.time(location.position, now, &*shards.clock);
    if mode == Mode::Peek {
        return peek(&mut shard, charge, &location, now);
    }
    if location.position.is_none() && mode.spends(charge) {
        let new = NewKeys { shard: number, count: 1, elsewhere: 0, keep: &[id], now };
        shards.make_room(&mut shard, new);
    }
    spend(&mut shard, &shards.usage, charge, &location, now, mode)
}

/// Decides several charges.
fn decide_several(
    shards: &Shards,
    charges: &[Charge<'_>],
    now: Timestamp,
    mode: Mode,
) -> Vec<ChargeReply> {
    let mut locked = LockedShards::new(shards);
    locked.lock(charges);
    let now = locked.time(now);
    let admitted = mode == Mode::Force || locked.all_pass(charges, now);
    if mode != Mode::Peek {
        // Only charges that spend need room.
        let may_spend = |charge: &Charge<'_>| admitted || charge.is_trial();
        locked.make_room(charges, now, &|charge| may_spend(charge) && mode.spends(charge));
    }
    let (locked, locations) = locked.entries();
    let lines = || charges.iter().zip(locations);
    let mut replies = Vec::with_capacity(charges.len());
    let has_second_pass = mode != Mode::Peek && !charges.iter().all(Charge::is_live);
    for (charge, location) in lines() {
        let shard = &mut locked[location.shard].guard;
        if has_second_pass && !charge.is_live() {
            // The second pass replaces it.
            replies.push(unspent(charge, Standing::full(0)));
        } else if mode == Mode::Peek || !admitted {
            replies.push(peek(shard, charge, location, now));
        } else {
            replies.push(spend(shard, &shards.usage, charge, location, now, mode));
        }
    }
    if !has_second_pass {
        return replies;
    }
    // Shadows and trials are decided last, so that they see the key as the live charges leave it. A trial
    // is spent whatever the decision on the check.
    for ((charge, location), reply) in lines().zip(&mut replies) {
        let shard = &mut locked[location.shard].guard;
        if charge.is_trial() || (charge.is_shadow() && admitted) {
            *reply = spend(shard, &shards.usage, charge, location, now, mode);
        } else if charge.is_shadow() {
            // A trial of the same key may have created the entry.
            let position = shard.position(location.id);
            let location = Location { position, ..*location };
            *reply = peek(shard, charge, &location, now);
        }
    }
    replies
}

/// Returns the standing of the key without spending anything.
#[inline]
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
#[inline]
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
    let affordable = |free| mode.affordable(charge, free);
    let (units, mark, standing) =
        entry.state.spend(charge.quota(), now, charge.cost(), affordable, usage);
    entry.rank = Rank::new(&standing, now);
    let verdict = if units > 0 { Verdict::Passed } else { verdict(charge, &standing) };
    ChargeReply { verdict, units, standing, mark }
}

/// Returns the position of an entry that was not there when the shards were locked, or `None` if the
/// charge needs none because it spends nothing.
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
        mode.spends(charge).then(|| shard.insert(location.id, state(), usage))
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
