//! The decision on a check: lock, locate, make room, then [decide](crate::store::decide).

use smallvec::SmallVec;

use super::{
    entry_id::EntryId,
    locked::LockedShards,
    shard::Rank,
    shards::{NewKeys, Shards},
};
use crate::{
    algorithm::{At, KeyState},
    clock::Timestamp,
    decision::ChargeReply,
    policy::Charge,
    store::{
        Request,
        decide::{Mode, States, peek},
    },
};

pub(super) type Replies = SmallVec<[ChargeReply; 1]>;

/// Executes a request, and adds the reply to each charge, or to each line of a receipt.
pub(super) fn execute(
    shards: &Shards,
    request: Request<'_>,
    now: Timestamp,
    replies: &mut Replies,
) {
    let (charge, mode) = match request {
        Request::Acquire([charge]) => (charge, Mode::Acquire),
        Request::Peek([charge]) => (charge, Mode::Peek),
        Request::Force([charge]) => (charge, Mode::Force),
        _ => {
            *replies = Replies::from_vec(execute_locked(shards, request, now));
            return;
        }
    };
    replies.push(decide_entry(shards, shards.secret.entry(charge), charge, now, mode));
}

/// Decides a charge to this entry, which is alone in its check. `benches/check.rs` (one charge) shows what this
/// saves: there is one lock, one search and one pass.
pub(super) fn decide_entry(
    shards: &Shards,
    id: EntryId,
    charge: &Charge<'_>,
    now: Timestamp,
    mode: Mode,
) -> ChargeReply {
    let number = shards.shard_of(id);
    let mut shard = shards.lock(number);
    let found = shard.position(id);
    let now = shard.time(found, now, &*shards.clock);
    let is_spent = mode != Mode::Peek && mode.spends(charge);
    let position = match found {
        None if is_spent => {
            let new = NewKeys { shard: number, count: 1, elsewhere: 0, keep: &[id], now };
            shards.make_room(&mut shard, new);
            shard.insert(id, KeyState::new(charge.quota().algorithm()), &shards.usage)
        }
        None => return peek(charge, None, now),
        Some(position) => position,
    };
    let entry = shard.entry(position);
    let at = At { now, budget: &shards.usage };
    let reply = if is_spent {
        mode.spend(charge, &mut entry.state, at)
    } else {
        peek(charge, Some(&mut entry.state), now)
    };
    entry.rank = Rank::new(&reply.standing, now);
    // The unlocking empties the store buffer, so that the reply is copied without a stall.
    drop(shard);
    reply
}

/// Executes a request on the locked shards of its charges. `benches/check.rs` (three policies in one check)
/// measures this.
fn execute_locked(shards: &Shards, request: Request<'_>, now: Timestamp) -> Vec<ChargeReply> {
    let mut locked = LockedShards::lock(shards, request);
    let now = locked.time(now);
    let replies = locked.execute(request, At { now, budget: &shards.usage });
    locked.rank(&replies, now);
    replies
}
