//! Sliding buckets: a sliding log whose times are rounded up to the next of `n` edges a window.
//!
//! Admits at most `limit` units in any window, and keeps at most `n + 1` records. A unit comes back
//! up to `window / n` late.
//!
//! # Changing a quota
//!
//! - A new *limit* applies at once to all units that still count.
//! - A new number of buckets applies to the charges after the bucket that is open.
//! - After a change of the *window* each charge counts for its own window, or for the window of a later
//!   charge if that is shorter, from the end of its bucket on. See [`ring`](super::ring).
//!   - If the window grows, the open bucket ends at the key's last charge.
//!   - If the window shrinks, the open bucket ends at its end under the old quota, or at the end of the
//!     new bucket that holds the key's last charge, whichever is earlier. Example: a charge at second 30
//!     is in the bucket that ends at 60. Under a new quota with buckets of 10 s it ends at 40. Charges
//!     until then count in the bucket. Each of them lies before the end, so it counts for the whole new
//!     window.
//! - The bound holds from the change on for the units charged after it, as for the sliding log.

use super::{
    MemoryBudget, Refund, Snapshot, StateMachine,
    bytes::Numbers,
    math::bucket_end,
    ring::{Ring, TrailingWindow},
};
use crate::{clock::Timestamp, decision::Mark, quota::Quota};

#[cfg_attr(test, derive(Clone))]
#[derive(Debug, Default)]
pub(crate) struct SlidingBuckets(Ring);

/// A log as it stands at one time under one quota, and the number of buckets in a window.
pub(crate) struct Buckets {
    trailing: TrailingWindow,
    window: u64,
    n: u64,
}

impl Snapshot for Buckets {
    fn free(&self) -> u64 {
        self.trailing.free()
    }
}

impl StateMachine for SlidingBuckets {
    type Snapshot = Buckets;

    #[inline]
    fn heal(&mut self, now: Timestamp) {
        self.0.heal(now.as_micros());
    }

    fn snapshot(&self, quota: &Quota, now: Timestamp) -> Buckets {
        let (window, n) = (quota.window_micros(), quota.algorithm().parameter());
        let end = |time| bucket_end(window, n, time);
        let trailing = self.0.trailing(quota.limit(), window, now.as_micros(), false, end);
        Buckets { trailing, window, n }
    }

    fn wait(&self, buckets: &Buckets, units: u64) -> u64 {
        self.0.wait(&buckets.trailing, units)
    }

    #[inline]
    fn charge(&mut self, buckets: &mut Buckets, units: u64, budget: &dyn MemoryBudget) -> Mark {
        let Buckets { window, n, .. } = *buckets;
        let edge = |now| bucket_end(window, n, now);
        Mark(self.0.push(&mut buckets.trailing, edge, units, budget), 0, 0)
    }

    fn refund(&mut self, quota: &Quota, now: Timestamp, refund: &Refund) -> u64 {
        let Buckets { trailing, .. } = self.snapshot(quota, now);
        self.0.refund(&trailing, refund)
    }

    fn expires_at(&self) -> Timestamp {
        Timestamp::from_micros(self.0.expires_at())
    }

    fn outstanding(&self, now: Timestamp) -> u64 {
        self.0.outstanding(now.as_micros())
    }

    fn outstanding_of(quota: &Quota, _: u32, units: u64, since: u64, now: u64) -> u64 {
        let window = quota.window_micros();
        if now < bucket_end(window, quota.algorithm().parameter(), since) + window {
            units
        } else {
            0
        }
    }

    fn heap_bytes(&self) -> usize {
        self.0.heap_bytes()
    }

    fn write(&self, bytes: &mut Vec<u8>) {
        self.0.write(bytes);
    }

    fn read(numbers: &mut Numbers<'_>) -> Option<Self> {
        Ring::read(numbers).map(Self)
    }
}
