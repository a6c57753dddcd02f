//! Sliding counter: two fixed windows, the older weighted by its overlap with the trailing window.
//!
//! Promises at most `2 * limit - 1` units in any window, and near `limit` on steady traffic. The
//! estimate is `ceil(previous * (end - now) / length) + current`: rounded up, so that it never
//! promises what the unrounded one would not.

use super::{
    Machine, Refund, Room, View,
    fixed_window::{MOST, next_edge},
    math::{mul_div, mul_div_ceil},
};
use crate::{clock::Timestamp, decision::Mark, quota::Quota};

#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct SlidingCounter {
    current: u64,
    previous: u64,
    /// The current period. Periods follow each other without a gap; a fresh one begins at a
    /// multiple of the window.
    start: u64,
    end: u64,
    /// Where the previous period began.
    before: u64,
    /// The window under which `current` began to count: how long it takes to leave.
    window: u64,
}

pub(crate) struct Estimate {
    limit: u64,
    now: u64,
    state: SlidingCounter,
    /// The length of the next period.
    next: u64,
}

impl Estimate {
    fn units(&self) -> u64 {
        let SlidingCounter { current, previous, start, end, .. } = self.state;
        // A clock that ran backward is taken to stand at the start of the period.
        let left = end - self.now.max(start);
        current + mul_div_ceil(previous, left, end - start)
    }
}

impl View for Estimate {
    fn free(&self) -> u64 {
        self.limit.saturating_sub(self.units())
    }
}

impl Machine for SlidingCounter {
    type View = Estimate;

    fn view(&self, quota: &Quota, now: Timestamp) -> Estimate {
        let (limit, window, now) = (quota.limit(), quota.window_micros(), now.as_micros());
        let mut state = *self;
        state.end = self.end.min(self.start + window);
        // What was counted under another window leaves by the shorter of the two.
        let next = self.window.min(window);
        if now < state.end {
            return Estimate { limit, now, state, next };
        }
        state = if now < state.end + next {
            Self {
                current: 0,
                previous: self.current,
                start: state.end,
                end: state.end + next,
                before: self.start,
                window,
            }
        } else {
            let end = next_edge(now, window);
            Self { start: end - window, end, before: end - window, window, ..Self::default() }
        };
        Estimate { limit, now, state, next: window }
    }

    fn wait(&self, estimate: &Estimate, units: u64) -> u64 {
        let SlidingCounter { current, previous, start, end, .. } = estimate.state;
        let most = estimate.limit - units;
        // When the estimate comes down to `most`: within this period, or in the next one, in which
        // what is current now will be the previous.
        let time = match most.checked_sub(current) {
            Some(room) if estimate.units() > most => end - mul_div(room, end - start, previous),
            Some(_) => estimate.now,
            None => end + estimate.next - mul_div(most, estimate.next, current),
        };
        time.saturating_sub(estimate.now)
    }

    fn spend(&mut self, estimate: &mut Estimate, units: u64, _: &dyn Room) -> Mark {
        let state = &mut estimate.state;
        state.current = state.current.saturating_add(units).min(MOST);
        *self = *state;
        Mark(state.start, 0, 0)
    }

    fn refund(&mut self, quota: &Quota, now: Timestamp, spent: &Refund) -> u64 {
        let mut state = self.view(quota, now).state;
        let counter = match spent.mark.0 {
            start if start == state.start => &mut state.current,
            start if start == state.before => &mut state.previous,
            _ => return 0,
        };
        let units = spent.units.min(*counter);
        *counter -= units;
        *self = state;
        units
    }

    fn expires_at(&self) -> Timestamp {
        Timestamp::from_micros(self.end + self.window)
    }

    fn owed(&self, now: Timestamp) -> u64 {
        let now = now.as_micros();
        if now < self.end {
            let left = self.end - now.max(self.start);
            self.current + mul_div_ceil(self.previous, left, (self.end - self.start).max(1))
        } else {
            let left = (self.end + self.window).saturating_sub(now);
            mul_div_ceil(self.current, left, self.window.max(1))
        }
    }
}
