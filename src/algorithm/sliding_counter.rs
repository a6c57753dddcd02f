//! Sliding counter: two fixed windows, the older weighted by its overlap with the trailing window.
//!
//! Admits at most `2 * limit - 1` units in any window, and near `limit` on steady traffic. The
//! estimate is `ceil(previous * (end - now) / window) + current`. It is rounded up, so it never
//! admits what the exact estimate would deny.
//!
//! # Changing a quota
//!
//! - A new *limit* applies at once to the estimate.
//! - After a change of the *window* both counters start at 0, in the new window's periods. The
//!   units of the two old periods are [carried](super::carried) beside the new counters. The weight of
//!   each old period is the smaller of two estimates: the one by the old window, and the one by the new
//!   window, as if all units of the period had been charged at the last possible time. This is the
//!   key's last charge for the later period, and the last microsecond of the earlier one.
//! - The bound holds from the change on: the new counters alone already keep the units admitted
//!   after it at `2 * limit - 1` in any new window, and carried units only add to the estimate.
//! - A refund is taken from the counter that has counted its charge. If the window changes and changes
//!   back within one period, this is not the counter that counts now. The [generation](super::carried)
//!   in the mark tells them apart.

use super::{
    MemoryBudget, Refund, Snapshot, StateMachine,
    bytes::{MAX_NUMBER, MAX_WINDOW, Numbers, write_numbers},
    carried::{self, Carried, Ramp, generation, heap_bytes, replace, take, take_all, until},
    math::{MAX_COUNT, first_time, mul_div, mul_div_ceil, next_edge},
};
use crate::{clock::Timestamp, decision::Mark, quota::Quota};

#[cfg_attr(test, derive(Clone))]
#[derive(Debug, Default)]
pub(crate) struct SlidingCounter {
    /// Units of the period in which the last charge lies, and of the period before it.
    current: u64,
    previous: u64,
    /// The window of the last charge, in microseconds; 0 before the first.
    window: u64,
    /// The time of the last charge. The current period is the one that holds it.
    last_charge: u64,
    carried: Option<Box<Carried>>,
}

/// A sliding counter as it stands at one time under one quota.
pub(crate) struct Estimate {
    limit: u64,
    window: u64,
    now: u64,
    /// The time at which the state is judged: never before its last charge.
    seen: u64,
    current: u64,
    previous: u64,
    /// The first microsecond after the current period.
    end: u64,
    carried: Option<Box<Carried>>,
}

impl Estimate {
    /// Returns the estimate of both counters at the time at which the state is judged.
    fn counted(&self) -> u64 {
        self.current + mul_div_ceil(self.previous, self.end - self.seen, self.window)
    }

    /// Returns the units that count at `time` if nothing is charged until then.
    fn used(&self, time: u64) -> u64 {
        let ramp = |end| Ramp { hold: end - self.window, zero: end };
        ramp(self.end).weight(self.previous, time)
            + ramp(self.end + self.window).weight(self.current, time)
            + self.carried.as_ref().map_or(0, |carried| carried.weight(time))
    }
}

impl Snapshot for Estimate {
    fn free(&self) -> u64 {
        let carried = self.carried.as_ref().map_or(0, |carried| carried.weight(self.seen));
        self.limit.saturating_sub(self.counted() + carried)
    }
}

impl StateMachine for SlidingCounter {
    type Snapshot = Estimate;

    #[inline]
    fn heal(&mut self, now: Timestamp) {
        if self.last_charge > now.as_micros() + self.window {
            let overlap = next_edge(self.last_charge, self.window) - self.last_charge;
            let previous = mul_div_ceil(self.previous, overlap, self.window);
            let carried = take_all(&mut self.carried, self.last_charge);
            self.current = (self.current + previous + carried).min(MAX_COUNT);
            (self.previous, self.last_charge) = (0, now.as_micros());
        }
    }

    fn snapshot(&self, quota: &Quota, now: Timestamp) -> Estimate {
        let (limit, window, now) = (quota.limit(), quota.window_micros(), now.as_micros());
        let seen = now.max(self.last_charge);
        let (mut current, mut previous, end) = (0, 0, next_edge(seen, window));
        let carried = if self.window == window {
            let last_end = next_edge(self.last_charge, window);
            if end == last_end {
                (current, previous) = (self.current, self.previous);
            } else if end == last_end + window {
                previous = self.current;
            }
            self.carried.clone()
        } else {
            self.carry(window, seen)
        };
        Estimate { limit, window, now, seen, current, previous, end, carried }
    }

    fn wait(&self, estimate: &Estimate, units: u64) -> u64 {
        let Estimate { limit, window, now, seen, current, previous, end, .. } = *estimate;
        let target = limit - units;
        if let Some(carried) = &estimate.carried {
            let last = carried.end().max(end + window);
            return match first_time(seen, last, target, |time| estimate.used(time)) {
                time if time > seen => time - now,
                _ => 0,
            };
        }
        // The estimate comes down to `target` within this period, or in the next one, in which
        // what is current now is the previous count.
        let time = match target.checked_sub(current) {
            Some(_) if estimate.counted() <= target => return 0,
            Some(room) => end - mul_div(room, window, previous),
            None => end + window - mul_div(target, window, current),
        };
        time - now
    }

    #[inline]
    fn charge(&mut self, estimate: &mut Estimate, units: u64, budget: &dyn MemoryBudget) -> Mark {
        estimate.current = estimate.current.saturating_add(units).min(MAX_COUNT);
        self.current = estimate.current;
        self.previous = estimate.previous;
        self.window = estimate.window;
        self.last_charge = estimate.seen;
        replace(&mut self.carried, &estimate.carried, self.last_charge, budget);
        let start = estimate.end - estimate.window;
        Mark(start, generation(&self.carried, start), 0)
    }

    fn refund(&mut self, quota: &Quota, now: Timestamp, refund: &Refund) -> u64 {
        let window = refund.quota.window_micros();
        let Mark(start, charged_in, _) = refund.mark;
        let end = start + window;
        let own = Ramp { hold: end, zero: end + window };
        let estimate = self.snapshot(quota, now);
        let last_end = next_edge(self.last_charge, self.window.max(1));
        let is_counted = self.window == window && generation(&self.carried, start) == charged_in;
        let stored = match is_counted {
            true if end == last_end => Some(&mut self.current),
            true if end + window == last_end => Some(&mut self.previous),
            _ => None,
        };
        let counts = match &estimate.carried {
            Some(carried) if carried.counts(own, estimate.seen) => true,
            _ => stored.is_some() && estimate.window == window && estimate.seen < own.zero,
        };
        if !counts {
            return 0;
        }
        let carried = self.carried.as_mut().and_then(|it| it.units_of(own, estimate.seen));
        take(refund.units, [stored, carried])
    }

    fn expires_at(&self) -> Timestamp {
        match self.window {
            0 => Timestamp::default(),
            window => {
                let zero = next_edge(self.last_charge, window) + window;
                Timestamp::from_micros(zero.max(until(&self.carried)))
            }
        }
    }

    fn outstanding(&self, now: Timestamp) -> u64 {
        let Some(passed) = now.as_micros().checked_sub(self.last_charge) else {
            return self.current;
        };
        let left = (2 * self.window).saturating_sub(passed).min(self.window);
        mul_div_ceil(self.current, left, self.window.max(1))
    }

    fn outstanding_of(quota: &Quota, _: u32, units: u64, since: u64, now: u64) -> u64 {
        let window = quota.window_micros();
        let hold = next_edge(since, window);
        Ramp { hold, zero: hold + window }.weight(units, now)
    }

    fn heap_bytes(&self) -> usize {
        heap_bytes(&self.carried)
    }

    fn write(&self, bytes: &mut Vec<u8>) {
        write_numbers(bytes, [self.current, self.previous, self.window, self.last_charge]);
        carried::write(&self.carried, bytes);
    }

    fn read(numbers: &mut Numbers<'_>) -> Option<Self> {
        let (current, previous) = (numbers.next(MAX_COUNT)?, numbers.next(MAX_COUNT)?);
        let (window, last_charge) = (numbers.next(MAX_WINDOW)?, numbers.next(MAX_NUMBER)?);
        Some(Self { current, previous, window, last_charge, carried: carried::read(numbers)? })
    }
}

impl SlidingCounter {
    /// Returns what another window carries of this state at `seen`.
    #[cold]
    fn carry(&self, window: u64, seen: u64) -> Option<Box<Carried>> {
        if self.window == 0 {
            return None;
        }
        let ramp = |hold, window| Ramp { hold, zero: hold + window };
        let mut carried = self.carried.clone().unwrap_or_default();
        let end = next_edge(self.last_charge, self.window);
        carried.begin_counters(seen, end + self.window, |time| next_edge(time, window) + window);
        let later = ramp(next_edge(self.last_charge, window), window);
        carried.bound_by(later);
        // The period before ended a microsecond before the current one began.
        let start = end - self.window;
        let later_previous = ramp(next_edge(start.saturating_sub(1), window), window);
        carried.add(self.previous, ramp(start, self.window), later_previous);
        carried.add(self.current, ramp(end, self.window), later);
        carried.unexpired(seen)
    }
}
