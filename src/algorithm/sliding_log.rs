//! Sliding log: remembers every charge with its time.
//!
//! Admits at most `limit` units in any window, and keeps at most 10,001 records.
//!
//! Up to a limit of 10,000, times are exact. Above it they are rounded up to the next of 10,000 edges a
//! window, as by [`SlidingBuckets(10_000)`](super::sliding_buckets), so a unit comes back up to
//! `window / 10_000` late. A window of up to 10 ms holds no more than 10,000 microseconds, so its times
//! are always exact.
//!
//! # Changing a quota
//!
//! - A new *limit* applies at once to all units that still count. If it needs another resolution, records
//!   keep their stamps, and charges before the stamp of the newest record join that record.
//! - After a change of the *window* each charge counts for its own window, or for the window of a later
//!   charge if that is shorter. See [`ring`](super::ring).
//! - The bound holds from the change on for the units charged after it, because each of them counts
//!   for the whole new window. Once one new window has passed, it holds for all units.

use super::{
    MemoryBudget, Refund, StateMachine,
    math::bucket_end,
    ring::{Ring, TrailingWindow},
};
use crate::{clock::Timestamp, decision::Mark, quota::Quota};

/// The most records of a log in one window, without the open one. The Lua twin is `sliding_log.lua`.
const RECORDS: u64 = 10_000;

#[derive(Debug, Default)]
pub(crate) struct SlidingLog(Ring);

impl StateMachine for SlidingLog {
    type Snapshot = TrailingWindow;

    #[inline]
    fn heal(&mut self, now: Timestamp) {
        self.0.heal(now.as_micros());
    }

    fn snapshot(&self, quota: &Quota, now: Timestamp) -> TrailingWindow {
        self.0.trailing(quota.limit(), quota.window_micros(), now.as_micros(), |time| {
            stamp(quota.limit(), quota.window_micros(), time)
        })
    }

    fn wait(&self, trailing: &TrailingWindow, units: u64) -> u64 {
        self.0.wait(trailing, units)
    }

    fn charge(
        &mut self,
        trailing: &mut TrailingWindow,
        units: u64,
        budget: &dyn MemoryBudget,
    ) -> Mark {
        let (limit, window) = (trailing.limit(), trailing.window());
        self.0.push(trailing, |now| stamp(limit, window, now), units, budget)
    }

    fn refund(&mut self, quota: &Quota, now: Timestamp, refund: &Refund) -> u64 {
        let trailing = self.snapshot(quota, now);
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
        if now < stamp(quota.limit(), window, since) + window { units } else { 0 }
    }

    fn heap_bytes(&self) -> usize {
        self.0.heap_bytes()
    }
}

/// Returns the stamp of a charge at `time`.
#[inline]
fn stamp(limit: u64, window: u64, time: u64) -> u64 {
    if limit > RECORDS && window > RECORDS { bucket_end(window, RECORDS, time) } else { time }
}
