//! Sliding buckets: a sliding log whose times are rounded up to the next of `n` edges a window.
//!
//! Never more than `limit` units in any window, in at most `n + 1` records; a unit comes back up
//! to `window / n` late.

use super::{
    Machine, Refund, Room, View,
    math::{mul_div, mul_div_ceil},
    ring::{Ring, Trailing},
};
use crate::{clock::Timestamp, decision::Mark, quota::Quota};

#[derive(Debug, Default)]
pub(crate) struct SlidingBuckets(Box<Ring>);

/// What counts, and how many buckets there are to a window.
pub(crate) struct Buckets {
    trailing: Trailing,
    window: u64,
    n: u64,
}

impl View for Buckets {
    fn free(&self) -> u64 {
        self.trailing.free()
    }
}

impl Machine for SlidingBuckets {
    type View = Buckets;

    fn view(&self, quota: &Quota, now: Timestamp) -> Buckets {
        let window = quota.window_micros();
        let trailing = self.0.trailing(quota.limit(), window, now.as_micros());
        Buckets { trailing, window, n: quota.algorithm().parameter() }
    }

    fn wait(&self, buckets: &Buckets, units: u64) -> u64 {
        self.0.wait(&buckets.trailing, units)
    }

    fn spend(&mut self, buckets: &mut Buckets, units: u64, room: &dyn Room) -> Mark {
        let Buckets { window, n, .. } = *buckets;
        self.0.push(&mut buckets.trailing, |now| bucket_end(window, n, now), units, room)
    }

    fn refund(&mut self, quota: &Quota, now: Timestamp, spent: &Refund) -> u64 {
        self.0.take_back(quota.window_micros(), now.as_micros(), spent.mark, spent.units)
    }

    fn expires_at(&self) -> Timestamp {
        Timestamp::from_micros(self.0.expires_at())
    }

    fn owed(&self, now: Timestamp) -> u64 {
        self.0.owed(now.as_micros())
    }

    fn heap_bytes(&self) -> usize {
        size_of::<Ring>() + self.0.heap_bytes()
    }
}

/// The end of the bucket that holds `now`. Edges are the multiples of `window / n`, rounded up to
/// a microsecond only when one is named, so that they do not drift when n does not divide.
pub(super) fn bucket_end(window: u64, n: u64, now: u64) -> u64 {
    mul_div_ceil(mul_div(now, n, window) + 1, window, n)
}
