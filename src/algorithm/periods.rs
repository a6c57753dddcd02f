//! Counters of periods, shared by the fixed window and the sliding counter.
//!
//! A period begins at each multiple of the window. Its units fade out over `FADE` windows after its end: 0 of a
//! fixed window, 1 of a sliding counter.
//!
//! # Fixed window
//!
//! One counter that starts again at each multiple of the window. It admits at most `limit` units from one multiple to
//! the next, so at most `2 * limit` in any window.
//!
//! # Sliding counter
//!
//! Two fixed windows, the older weighted by its overlap with the trailing window. It admits at most `2 * limit - 1`
//! units in any window, and near `limit` on steady traffic. The estimate is
//! `ceil(previous * (end - now) / window) + current`. It is rounded up, so it never admits what the exact estimate
//! would deny.
//!
//! # Changing a quota
//!
//! - A new *limit* applies at once to all units that count.
//! - After a change of the *window* the counters start at 0, in the new window's periods. The units that counted
//!   at the key's last charge are [`Carried`] beside them, as if all had been charged at that time.
//!   They leave as the units of the old window's period do, or of the new one's, whichever are gone first.
//! - The bound holds from the change on: the new counters alone already keep it, and carried units only add to
//!   what counts.
//! - A refund of a charge from before a change of the window gives back nothing.

use super::{
    MemoryBudget, Refund, Snapshot, StateMachine, Stored,
    bytes::{MAX_NUMBER, MAX_WINDOW, Numbers, write_numbers},
    carried::{Carried, Ramp, Record, heap_bytes},
    math::{MAX_COUNT, first_time, mul_div, next_edge},
};
use crate::{clock::Timestamp, decision::Mark, quota::Quota};

#[cfg_attr(test, derive(Clone))]
#[derive(Debug, Default)]
pub(crate) struct Periods<const FADE: u64> {
    /// Units of the period in which the last charge lies, and of the period before it.
    current: u64,
    previous: u64,
    /// The window of the last charge, in microseconds; 0 before the first.
    window: u64,
    /// The time of the last charge. The current period holds it.
    last_charge: u64,
    carried: Record,
}

/// The counters as they stand at one time under one quota.
pub(crate) struct Estimate<const FADE: u64> {
    limit: u64,
    window: u64,
    now: u64,
    /// The time at which the state is judged: never before its last charge.
    seen: u64,
    current: u64,
    previous: u64,
    /// The first microsecond after the current period.
    end: u64,
    carried: Carried,
}

/// Returns the rule by which the units of a period leave that ends at `end`.
fn ramp<const FADE: u64>(end: u64, window: u64) -> Ramp {
    Ramp { hold: end, zero: end + FADE * window }
}

/// Returns the rule by which the units of the period leave that holds `time`.
fn ramp_at<const FADE: u64>(time: u64, window: u64) -> Ramp {
    ramp::<FADE>(next_edge(time, window), window)
}

impl<const FADE: u64> Estimate<FADE> {
    /// Returns the units that count at `time` if nothing is charged until then.
    fn used(&self, time: u64) -> u64 {
        let start = self.end - self.window;
        ramp::<FADE>(start, self.window).weight(self.previous, time)
            + ramp::<FADE>(self.end, self.window).weight(self.current, time)
            + self.carried.weight(time)
    }
}

impl<const FADE: u64> Snapshot for Estimate<FADE> {
    fn free(&self) -> u64 {
        self.limit.saturating_sub(self.used(self.seen))
    }
}

impl<const FADE: u64> Stored for Periods<FADE> {
    fn heal(&mut self, now: Timestamp) {
        if self.last_charge > now.as_micros() + self.window {
            self.current = self.counted();
            self.previous = 0;
            self.last_charge = now.as_micros();
            // The record stays until the next charge, because its memory is counted.
            if let Some(carried) = &mut self.carried {
                **carried = Carried::default();
            }
        }
    }

    fn refund(&mut self, quota: &Quota, now: Timestamp, refund: &Refund) -> u64 {
        let window = refund.quota.window_micros();
        let Mark([start, generation, _]) = refund.mark;
        let seen = now.as_micros().max(self.last_charge);
        let end = start + window;
        let is_of_this_window = self.window == window
            && quota.window_micros() == window
            && Carried::of(&self.carried).generation(start) == generation;
        if !is_of_this_window || seen >= ramp::<FADE>(end, window).zero {
            return 0;
        }
        let last_end = next_edge(self.last_charge, window);
        let counter = if end == last_end {
            &mut self.current
        } else if end + window == last_end {
            &mut self.previous
        } else {
            return 0;
        };
        let units = refund.units.min(*counter);
        *counter -= units;
        units
    }

    fn expires_at(&self) -> Timestamp {
        if self.window == 0 {
            return Timestamp::default();
        }
        let zero = ramp_at::<FADE>(self.last_charge, self.window).zero;
        Timestamp::from_micros(zero.max(Carried::of(&self.carried).until()))
    }

    fn outstanding(&self, now: Timestamp) -> u64 {
        if self.window == 0 {
            return 0;
        }
        let window = self.window;
        let end = next_edge(self.last_charge, window);
        let now = now.as_micros().max(self.last_charge);
        ramp::<FADE>(end, window).weight(self.current, now)
            + ramp::<FADE>(end - window, window).weight(self.previous, now)
            + Carried::of(&self.carried).weight(now)
    }

    fn heap_bytes(&self) -> usize {
        heap_bytes(&self.carried)
    }

    fn write(&self, bytes: &mut Vec<u8>) {
        write_numbers(bytes, [self.current, self.previous, self.window, self.last_charge]);
        Carried::of(&self.carried).write(bytes);
    }
}

impl<const FADE: u64> StateMachine for Periods<FADE> {
    type Snapshot = Estimate<FADE>;

    fn snapshot(&self, quota: &Quota, now: Timestamp) -> Estimate<FADE> {
        let window = quota.window_micros();
        let now = now.as_micros();
        let seen = now.max(self.last_charge);
        let end = next_edge(seen, window);
        let mut current = 0;
        let mut previous = 0;
        let carried = if self.window == window {
            let last_end = next_edge(self.last_charge, window);
            if end == last_end {
                (current, previous) = (self.current, self.previous);
            } else if end == last_end + window {
                previous = FADE * self.current;
            }
            Carried::of(&self.carried)
        } else {
            self.carry(window, seen)
        };
        Estimate { limit: quota.limit(), window, now, seen, current, previous, end, carried }
    }

    fn wait(&self, estimate: &Estimate<FADE>, units: u64) -> u64 {
        let Estimate { limit, window, now, seen, current, previous, end, .. } = *estimate;
        let target = limit - units;
        if estimate.used(seen) <= target {
            return 0;
        }
        let time = if estimate.carried.end() > 0 {
            let last = estimate.carried.end().max(end + FADE * window);
            first_time(seen, last, target, |time| estimate.used(time))
        } else if let Some(room) = target.checked_sub(current) {
            // The previous period fades out so far in this one.
            end - mul_div(room, window, previous)
        } else {
            // In the next period, in which the current count is the previous one.
            end + FADE * (window - mul_div(target, window, current))
        };
        time - now
    }

    fn charge(
        &mut self,
        estimate: &mut Estimate<FADE>,
        units: u64,
        budget: &dyn MemoryBudget,
    ) -> Mark {
        estimate.current = estimate.current.saturating_add(units).min(MAX_COUNT);
        self.current = estimate.current;
        self.previous = estimate.previous;
        self.window = estimate.window;
        self.last_charge = estimate.seen;
        estimate.carried.store(&mut self.carried, self.last_charge, budget);
        let start = estimate.end - estimate.window;
        Mark([start, Carried::of(&self.carried).generation(start), 0])
    }

    /// A single unit of a period that fades out weighs as a whole one to the end of the next period.
    fn returned_at(quota: &Quota, time: u64) -> Option<u64> {
        let window = quota.window_micros();
        (FADE == 0 || quota.limit() == 1).then(|| next_edge(time, window) + FADE * window)
    }

    fn read(numbers: &mut Numbers<'_>) -> Option<Self> {
        let current = numbers.next(MAX_COUNT)?;
        let previous = numbers.next(MAX_COUNT)?;
        let window = numbers.next(MAX_WINDOW)?;
        let last_charge = numbers.next(MAX_NUMBER)?;
        // New counters have no window, and have counted nothing.
        let is_new = [current, previous, last_charge] == [0; 3];
        let carried = Carried::read(numbers)?;
        (window > 0 || is_new).then_some(Self { current, previous, window, last_charge, carried })
    }
}

impl<const FADE: u64> Periods<FADE> {
    /// Returns the units that counted at the last charge.
    fn counted(&self) -> u64 {
        let start = next_edge(self.last_charge, self.window) - self.window;
        let previous = ramp::<FADE>(start, self.window).weight(self.previous, self.last_charge);
        let carried = Carried::of(&self.carried).weight(self.last_charge);
        (self.current + previous + carried).min(MAX_COUNT)
    }

    /// Returns the units that another window carries of this state at `seen`.
    fn carry(&self, window: u64, seen: u64) -> Carried {
        if self.window == 0 {
            return Carried::default();
        }
        let rules = [self.window, window].map(|it| ramp_at::<FADE>(self.last_charge, it));
        Carried::of(&self.carried)
            .next(seen, self.counted(), rules, |time| ramp_at::<FADE>(time, window).zero)
    }
}
