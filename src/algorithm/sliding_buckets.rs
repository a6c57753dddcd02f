//! Sliding buckets: a sliding log whose times are rounded up to the next of `n` edges a window.
//!
//! Never more than `limit` units in any window, in at most `n + 1` records; a unit comes back up
//! to `window / n` late.

use super::{
    Algorithm, Machine, Mark, Room, Spent,
    math::{mul_div, mul_div_ceil},
    ring::{Ring, Trailing},
};
use crate::{clock::Timestamp, quota::Quota};

#[derive(Debug, Default)]
pub(crate) struct SlidingBuckets(Box<Ring>);

impl Machine for SlidingBuckets {
    type View<'a> = Trailing<'a>;

    fn view(&self, quota: &Quota, now: Timestamp) -> Trailing<'_> {
        self.0.trailing(quota.limit(), quota.window_micros(), now.as_micros())
    }

    fn spend(&mut self, quota: &Quota, now: Timestamp, units: u64, room: &dyn Room) -> Mark {
        let window = quota.window_micros();
        self.0.push(window, now.as_micros(), |now| bucket_end(quota, now), units, room)
    }

    fn give_back(&mut self, quota: &Quota, now: Timestamp, spent: &Spent) -> u64 {
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
fn bucket_end(quota: &Quota, now: u64) -> u64 {
    let (n, window) = match quota.counted_by() {
        Algorithm::SlidingBuckets(n) => (u64::from(n), quota.window_micros()),
        _ => (1, quota.window_micros()),
    };
    mul_div_ceil(mul_div(now, n, window) + 1, window, n)
}
