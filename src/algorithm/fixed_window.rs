//! Fixed window: one counter that starts again at each multiple of the window.
//!
//! Promises at most `limit` units from one multiple to the next, so at most `2 * limit` in any
//! window.

use super::{Machine, Refund, Room, View};
use crate::{clock::Timestamp, decision::Mark, quota::Quota};

/// Beyond any limit, and far from overflow: forced charges stop counting here.
pub(super) const MOST: u64 = 1 << 52;

#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct FixedWindow {
    count: u64,
    /// The first microsecond that counts.
    start: u64,
    /// The first that no longer does. After a change of the window this may come before the new
    /// window's end: units leave at the earlier of the old and the new rule.
    end: u64,
}

pub(crate) struct Period {
    limit: u64,
    now: u64,
    count: u64,
    start: u64,
    end: u64,
}

impl View for Period {
    fn free(&self) -> u64 {
        self.limit.saturating_sub(self.count)
    }
}

impl Machine for FixedWindow {
    type View = Period;

    fn view(&self, quota: &Quota, now: Timestamp) -> Period {
        let (limit, window) = (quota.limit(), quota.window_micros());
        let now = now.as_micros();
        let end = self.end.min(next_edge(self.start, window));
        if now < end {
            Period { limit, now, count: self.count, start: self.start, end }
        } else {
            let end = next_edge(now, window);
            Period { limit, now, count: 0, start: end - window, end }
        }
    }

    fn wait(&self, period: &Period, units: u64) -> u64 {
        if units > period.free() { period.end - period.now } else { 0 }
    }

    fn spend(&mut self, period: &mut Period, units: u64, _: &dyn Room) -> Mark {
        period.count = period.count.saturating_add(units).min(MOST);
        *self = Self { count: period.count, start: period.start, end: period.end };
        Mark(period.start, 0, 0)
    }

    fn refund(&mut self, quota: &Quota, now: Timestamp, spent: &Refund) -> u64 {
        let period = self.view(quota, now);
        if period.start != spent.mark.0 {
            return 0;
        }
        let units = spent.units.min(period.count);
        *self = Self { count: period.count - units, start: period.start, end: period.end };
        units
    }

    fn expires_at(&self) -> Timestamp {
        Timestamp::from_micros(self.end)
    }

    fn owed(&self, _: Timestamp) -> u64 {
        self.count
    }
}

/// The first multiple of the window after `time`.
pub(super) fn next_edge(time: u64, window: u64) -> u64 {
    (time / window + 1) * window
}
