//! The interface between an algorithm and the rest of the crate.

use super::bytes::Numbers;
use crate::{clock::Timestamp, decision::Mark, quota::Quota};

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

/// A state as it stands at one time under one quota.
pub(crate) trait Snapshot {
    /// Returns the units that can be charged at once.
    fn free(&self) -> u64;
}

/// The state of one key under one algorithm. The default is the state of a key that has spent
/// nothing.
///
/// The quota may differ from one call to the next: the module documentation of each algorithm says
/// how a state that was written under another quota counts.
pub(crate) trait StateMachine: Default {
    /// The state as it stands at one time under one quota.
    type Snapshot: Snapshot;

    /// Treats everything that counts as charged at `now` if the clock has been set back: the last charge
    /// is later than `now` by more than its window. Otherwise no unit would return until the clock has
    /// caught up.
    fn heal(&mut self, now: Timestamp);

    /// Returns a snapshot of the state at `now` under `quota`. If `now` is before the last charge, the
    /// clock ran backward, and the snapshot is that of the time of this charge.
    fn snapshot(&self, quota: &Quota, now: Timestamp) -> Self::Snapshot;

    /// Returns whether `units` are free at `now` under `quota`.
    #[inline]
    fn affords(&self, quota: &Quota, now: Timestamp, units: u64) -> bool {
        units <= self.snapshot(quota, now).free()
    }

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

    /// Refunds the units of a charge that still count at `now` under `quota`. Returns their number.
    fn refund(&mut self, quota: &Quota, now: Timestamp, refund: &Refund) -> u64;

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

    /// Restores a state from its numbers. Returns `None` if one is out of range.
    fn read(numbers: &mut Numbers<'_>) -> Option<Self>;
}
