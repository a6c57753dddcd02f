//! Sliding log: every charge with its time. Never more than `limit` units in any window.

use super::{
    Machine, Refund, Room,
    ring::{Ring, Trailing},
};
use crate::{clock::Timestamp, decision::Mark, quota::Quota};

#[derive(Debug, Default)]
pub(crate) struct SlidingLog(Box<Ring>);

impl Machine for SlidingLog {
    type View = Trailing;

    fn view(&self, quota: &Quota, now: Timestamp) -> Trailing {
        self.0.trailing(quota.limit(), quota.window_micros(), now.as_micros())
    }

    fn wait(&self, trailing: &Trailing, units: u64) -> u64 {
        self.0.wait(trailing, units)
    }

    fn spend(&mut self, trailing: &mut Trailing, units: u64, room: &dyn Room) -> Mark {
        self.0.push(trailing, |now| now, units, room)
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
