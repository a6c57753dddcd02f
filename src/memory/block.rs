//! Blocks of keys.

use std::time::Duration;

use super::{
    decide::Replies,
    shard::{Rank, ShardEntry},
    shards::{NewKeys, Shards},
};
use crate::{
    algorithm::{Block, KeyState},
    clock::Timestamp,
    decision::{ChargeReply, Mark, Standing, Verdict},
    policy::Charge,
};

/// Blocks the keys of these charges, one after the other. A key without an entry gets one.
pub(super) fn block(
    shards: &Shards,
    charges: &[Charge<'_>],
    duration: Duration,
    now: Timestamp,
) -> Replies {
    let block = |charge: &Charge<'_>| {
        let id = shards.secret.entry(charge);
        let number = shards.shard_of(id);
        let mut shard = shards.lock(number);
        let position = shard.position(id);
        let now = shard.time(position, now, &*shards.clock);
        let position = position.unwrap_or_else(|| {
            let new = NewKeys { shard: number, count: 1, elsewhere: 0, keep: &[id], now };
            shards.make_room(&mut shard, new);
            shard.insert(id, KeyState::new(charge.quota().algorithm()), &shards.usage)
        });
        let entry = shard.entry(position);
        let is_found = entry.state.standing(charge.quota(), now, 0).reset_after > 0;
        entry.state.block(Block::new(now, duration), now, &shards.usage);
        reply(charge, entry, now, is_found)
    };
    charges.iter().map(block).collect()
}

/// Lifts the blocks of the keys of these charges.
pub(super) fn unblock(shards: &Shards, charges: &[Charge<'_>], now: Timestamp) -> Replies {
    let unblock = |charge: &Charge<'_>| {
        let id = shards.secret.entry(charge);
        let mut shard = shards.lock(shards.shard_of(id));
        let Some(position) = shard.position(id) else {
            return passed(Standing::full(charge.quota().capacity()), false);
        };
        let now = shard.time(Some(position), now, &*shards.clock);
        let entry = shard.entry(position);
        let was_blocked = entry.state.is_blocked(now);
        entry.state.unblock(&shards.usage);
        reply(charge, entry, now, was_blocked)
    };
    charges.iter().map(unblock).collect()
}

fn reply(
    charge: &Charge<'_>,
    entry: &mut ShardEntry,
    now: Timestamp,
    is_found: bool,
) -> ChargeReply {
    let standing = entry.state.standing(charge.quota(), now, 0);
    entry.rank = Rank::new(&standing, now);
    passed(standing, is_found)
}

fn passed(standing: Standing, is_found: bool) -> ChargeReply {
    let (units, mark) = (is_found.into(), Mark::default());
    ChargeReply { verdict: Verdict::Passed, units, standing, mark }
}
