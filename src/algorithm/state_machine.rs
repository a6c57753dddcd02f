//! The interface between an algorithm and the rest of the crate.

use std::time::Duration;

use super::bytes::Numbers;
use crate::{
    clock::Timestamp,
    decision::{ChargeReply, Mark, Standing, Verdict},
    quota::Quota,
};

/// A charge to refund.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Refund {
    /// The quota under which the charge was made.
    pub(crate) quota: Quota,
    /// The maximum number of units to refund.
    pub(crate) units: u64,
    /// The mark that the charge left.
    pub(crate) mark: Mark,
}

/// The memory that the states of a store share.
pub(crate) trait MemoryBudget {
    /// Returns whether a state may grow by this many bytes.
    fn allows(&self, bytes: usize) -> bool;
    /// Records that the heap memory of a state went from `before` to `after` bytes.
    fn resized(&self, before: usize, after: usize);
}

/// A memory that is never full, of states that are kept elsewhere.
#[derive(Debug)]
pub(crate) struct UnlimitedMemory;

impl MemoryBudget for UnlimitedMemory {
    fn allows(&self, _: usize) -> bool {
        true
    }

    fn resized(&self, _: usize, _: usize) {}
}

/// The time of a request, and the memory of the states.
#[derive(Clone, Copy)]
pub(crate) struct At<'b> {
    pub(crate) now: Timestamp,
    pub(crate) budget: &'b dyn MemoryBudget,
}

/// The units that a charge asks for.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Asked {
    pub(crate) cost: u64,
    pub(crate) max_cost: u64,
    pub(crate) terms: Terms,
}

/// The number of units that a charge takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Terms {
    /// The cost, whether or not it is free.
    Force,
    /// All that are free, up to the maximum.
    Use,
    /// Like [`Use`](Self::Use), but half of the free units beyond the cost are left to others.
    Lease,
}

impl Asked {
    /// Asks for these units, whether or not they are free.
    pub(crate) fn forced(cost: u64) -> Self {
        Self { cost, max_cost: cost, terms: Terms::Force }
    }

    /// Returns how many units are taken if `free` units are free.
    pub(crate) fn units(self, free: u64) -> u64 {
        let Self { cost, max_cost, terms } = self;
        match terms {
            Terms::Force => cost,
            _ if cost > free => 0,
            Terms::Use => max_cost.min(free),
            Terms::Lease => max_cost.min(free - (free - cost).div_ceil(2)),
        }
    }
}

/// A state as it stands at one time under one quota.
pub(crate) trait Snapshot {
    /// Returns the units that can be charged at once.
    fn free(&self) -> u64;
}

/// The part of a state that needs no snapshot.
pub(crate) trait Stored {
    /// Treats everything that counts as charged at `now` if the clock has been set back: the last charge
    /// is later than `now` by more than its window. Otherwise no unit would return until the clock has
    /// caught up.
    fn heal(&mut self, now: Timestamp);

    /// Refunds the units of a charge that still count at `now` under `quota`. Returns their number.
    fn refund(&mut self, quota: &Quota, now: Timestamp, refund: &Refund) -> u64;

    /// Releases units in flight. It needs no time, because those that have expired may be released as well. Only a
    /// sliding log counts such units.
    fn release(&mut self, _: Mark, _: u64) {}

    /// Returns the time from which this state equals the state of a new key, under any quota.
    fn expires_at(&self) -> Timestamp;

    /// Returns about how many units are outstanding at `now`. An eviction of the state would make them
    /// free.
    fn outstanding(&self, now: Timestamp) -> u64;

    /// Returns the bytes of heap memory that the state holds.
    fn heap_bytes(&self) -> usize {
        0
    }

    /// Appends the numbers of the state to its bytes.
    fn write(&self, bytes: &mut Vec<u8>);
}

/// The state of one key under one algorithm. The default is the state of a key that has spent
/// nothing.
///
/// The quota may differ from one call to the next: the module documentation of each algorithm says
/// how a state that was written under another quota counts.
pub(crate) trait StateMachine: Stored + Default {
    /// The state as it stands at one time under one quota.
    type Snapshot: Snapshot;

    /// Returns a snapshot of the state at `now` under `quota`. If `now` is before the last charge, the clock
    /// ran backward, and the snapshot is at the time of this charge.
    fn snapshot(&self, quota: &Quota, now: Timestamp) -> Self::Snapshot;

    /// Returns the shortest wait in microseconds until `units` are free if nothing else is charged,
    /// 0 if they are. `units` is at most the capacity of the quota.
    fn wait(&self, snapshot: &Self::Snapshot, units: u64) -> u64;

    /// Charges units, whether or not they are free, and brings the snapshot up to date.
    ///
    /// Law: units may be charged in parts. Two charges at one time, of `a` and of `b` units, leave the
    /// state as one charge of `a + b` units does: the same units are free, and they return at the same
    /// times. A lease relies on it, whose units are charged together and used one by one.
    fn charge(
        &mut self,
        snapshot: &mut Self::Snapshot,
        units: u64,
        budget: &dyn MemoryBudget,
    ) -> Mark;

    /// Returns the first time at which all units of a charge at `time` have come back, or `None` if they come
    /// back bit by bit.
    fn returned_at(quota: &Quota, time: u64) -> Option<u64>;

    /// Restores a state from its numbers. Returns `None` if one is out of range.
    fn read(numbers: &mut Numbers<'_>) -> Option<Self>;
}

/// The state of one key, whatever its algorithm. All values follow alike from a [`Snapshot`].
pub(crate) trait State: Stored {
    /// Returns whether `units` can be charged at once.
    fn affords(&mut self, quota: &Quota, now: Timestamp, units: u64) -> bool;

    /// Returns the standing of the key, with the wait of a charge of `units`.
    fn standing(&mut self, quota: &Quota, now: Timestamp, units: u64) -> Standing;

    /// Charges the units that are asked for, as far as they are free. If none is charged, the reply has the verdict
    /// on the cost, and the wait for it.
    fn spend(&mut self, quota: &Quota, asked: Asked, at: At<'_>) -> ChargeReply;
}

impl<M: StateMachine> State for M {
    fn affords(&mut self, quota: &Quota, now: Timestamp, units: u64) -> bool {
        self.heal(now);
        units <= self.snapshot(quota, now).free()
    }

    fn standing(&mut self, quota: &Quota, now: Timestamp, units: u64) -> Standing {
        self.heal(now);
        standing(self, &self.snapshot(quota, now), quota, units)
    }

    fn spend(&mut self, quota: &Quota, asked: Asked, at: At<'_>) -> ChargeReply {
        self.heal(at.now);
        let mut snapshot = self.snapshot(quota, at.now);
        let units = asked.units(snapshot.free());
        if units == 0 {
            return ChargeReply::peeked(asked.cost, standing(self, &snapshot, quota, asked.cost));
        }
        let mark = self.charge(&mut snapshot, units, at.budget);
        ChargeReply {
            verdict: Verdict::Passed,
            units,
            standing: standing(self, &snapshot, quota, 0),
            mark,
        }
    }
}

/// Returns the standing, computed from the free units and the waits of a snapshot.
fn standing<M: StateMachine>(
    state: &M,
    snapshot: &M::Snapshot,
    quota: &Quota,
    units: u64,
) -> Standing {
    let limit = quota.capacity();
    let remaining = snapshot.free();
    if remaining >= limit {
        return Standing::full(limit);
    }
    let next_after = Duration::from_micros(state.wait(snapshot, remaining + 1));
    let reset_after = if limit == remaining + 1 {
        next_after
    } else {
        Duration::from_micros(state.wait(snapshot, limit))
    };
    let retry_after = (units > remaining && units <= limit).then(|| match units {
        _ if units == remaining + 1 => next_after,
        _ if units == limit => reset_after,
        _ => Duration::from_micros(state.wait(snapshot, units)),
    });
    Standing { limit, remaining, next_after, reset_after, retry_after }
}
