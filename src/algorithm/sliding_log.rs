//! Sliding log: remembers every charge with its time.
//!
//! Admits at most `limit` units in any window.
//!
//! # Changing a quota
//!
//! - A new *limit* applies at once to all units that still count.
//! - After a change of the *window* each charge counts for its own window, or for the window of a later
//!   charge if that is shorter. See [`ring`](super::ring).
//! - The bound holds from the change on for the units charged after it, because each of them counts
//!   for the whole new window. Once one new window has passed, it holds for all units.

use super::{
    MemoryBudget, Refund, StateMachine,
    ring::{Ring, TrailingWindow},
};
use crate::{clock::Timestamp, decision::Mark, quota::Quota};

#[derive(Debug, Default)]
pub(crate) struct SlidingLog(Box<Ring>);

impl StateMachine for SlidingLog {
    type Snapshot = TrailingWindow;

    #[inline]
    fn heal(&mut self, now: Timestamp) {
        self.0.heal(now.as_micros());
    }

    fn snapshot(&self, quota: &Quota, now: Timestamp) -> TrailingWindow {
        self.0.trailing(quota.limit(), quota.window_micros(), now.as_micros(), |time| time)
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
        self.0.push(trailing, |now| now, units, budget)
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
        if now < since + quota.window_micros() { units } else { 0 }
    }

    fn heap_bytes(&self) -> usize {
        size_of::<Ring>() + self.0.heap_bytes()
    }
}
