//! Fixed window: one counter that starts again at each multiple of the window.
//!
//! Admits at most `limit` units from one multiple to the next, so at most `2 * limit` in any
//! window.
//!
//! # Changing a quota
//!
//! - A new *limit* applies at once to everything that the period has counted.
//! - After a change of the *window* the counter starts at 0, in the new window's period. The units
//!   that the old period has counted are [carried](super::carried): they count beside the new
//!   counter until the old period ends, or until the end of the new window's period in which the
//!   key's last charge lies, whichever comes first.
//! - The bound holds from the change on: a period of the new window admits at most `limit` units,
//!   so any new window admits at most `2 * limit` after the change.
//! - A refund is taken from the counter that has counted its charge. If the window changes and changes
//!   back within one period, this is not the counter that counts now. The [generation](super::carried)
//!   in the mark tells them apart.

use super::{
    MemoryBudget, Refund, Snapshot, StateMachine,
    bytes::{MAX_NUMBER, MAX_WINDOW, Numbers, write_numbers},
    carried::{self, Carried, Ramp, generation, heap_bytes, replace, take, take_all, until},
    math::{MAX_COUNT, first_time, next_edge},
};
use crate::{clock::Timestamp, decision::Mark, quota::Quota};

#[cfg_attr(test, derive(Clone))]
#[derive(Debug, Default)]
pub(crate) struct FixedWindow {
    /// Units of the period in which the last charge lies.
    count: u64,
    /// The window of the last charge, in microseconds; 0 before the first.
    window: u64,
    /// The time of the last charge. The period is the one that holds it.
    last_charge: u64,
    carried: Option<Box<Carried>>,
}

/// A fixed window as it stands at one time under one quota.
pub(crate) struct Period {
    limit: u64,
    window: u64,
    now: u64,
    /// The time at which the state is judged: never before its last charge.
    seen: u64,
    count: u64,
    /// The first microsecond after the period.
    end: u64,
    carried: Option<Box<Carried>>,
}

impl Period {
    /// Returns the units that count at `time` if nothing is charged until then.
    fn used(&self, time: u64) -> u64 {
        let count = if time < self.end { self.count } else { 0 };
        count + self.carried.as_ref().map_or(0, |carried| carried.weight(time))
    }
}

impl Snapshot for Period {
    fn free(&self) -> u64 {
        self.limit.saturating_sub(self.used(self.seen))
    }
}

impl StateMachine for FixedWindow {
    type Snapshot = Period;

    #[inline]
    fn heal(&mut self, now: Timestamp) {
        if self.last_charge > now.as_micros() + self.window {
            let carried = take_all(&mut self.carried, self.last_charge);
            self.count = (self.count + carried).min(MAX_COUNT);
            self.last_charge = now.as_micros();
        }
    }

    fn snapshot(&self, quota: &Quota, now: Timestamp) -> Period {
        let (limit, window, now) = (quota.limit(), quota.window_micros(), now.as_micros());
        let seen = now.max(self.last_charge);
        let (mut count, end) = (0, next_edge(seen, window));
        let carried = if self.window == window {
            if end == next_edge(self.last_charge, window) {
                count = self.count;
            }
            self.carried.clone()
        } else {
            self.carry(window, seen)
        };
        Period { limit, window, now, seen, count, end, carried }
    }

    fn wait(&self, period: &Period, units: u64) -> u64 {
        let target = period.limit - units;
        if period.used(period.seen) <= target {
            return 0;
        }
        let time = match &period.carried {
            None => period.end,
            Some(carried) => {
                let last = period.end.max(carried.end());
                first_time(period.seen, last, target, |time| period.used(time))
            }
        };
        time - period.now
    }

    #[inline]
    fn charge(&mut self, period: &mut Period, units: u64, budget: &dyn MemoryBudget) -> Mark {
        period.count = period.count.saturating_add(units).min(MAX_COUNT);
        self.count = period.count;
        self.window = period.window;
        self.last_charge = period.seen;
        replace(&mut self.carried, &period.carried, self.last_charge, budget);
        let start = period.end - period.window;
        Mark(start, generation(&self.carried, start), 0)
    }

    fn refund(&mut self, quota: &Quota, now: Timestamp, refund: &Refund) -> u64 {
        let window = refund.quota.window_micros();
        let Mark(start, charged_in, _) = refund.mark;
        let end = start + window;
        let own = Ramp { hold: end, zero: end };
        let period = self.snapshot(quota, now);
        let current = self.window == window
            && next_edge(self.last_charge, window) == end
            && generation(&self.carried, start) == charged_in;
        let counts = match &period.carried {
            Some(carried) if carried.counts(own, period.seen) => true,
            _ => current && period.window == window && period.end == end,
        };
        if !counts {
            return 0;
        }
        let carried = self.carried.as_mut().and_then(|it| it.units_of(own, period.seen));
        take(refund.units, [current.then_some(&mut self.count), carried])
    }

    fn expires_at(&self) -> Timestamp {
        match self.window {
            0 => Timestamp::default(),
            window => {
                let end = next_edge(self.last_charge, window);
                Timestamp::from_micros(end.max(until(&self.carried)))
            }
        }
    }

    fn outstanding(&self, _: Timestamp) -> u64 {
        self.count
    }

    fn outstanding_of(quota: &Quota, _: u32, units: u64, since: u64, now: u64) -> u64 {
        if now < next_edge(since, quota.window_micros()) { units } else { 0 }
    }

    fn heap_bytes(&self) -> usize {
        heap_bytes(&self.carried)
    }

    fn write(&self, bytes: &mut Vec<u8>) {
        write_numbers(bytes, [self.count, self.window, self.last_charge]);
        carried::write(&self.carried, bytes);
    }

    fn read(numbers: &mut Numbers<'_>) -> Option<Self> {
        let (count, window) = (numbers.next(MAX_COUNT)?, numbers.next(MAX_WINDOW)?);
        let last_charge = numbers.next(MAX_NUMBER)?;
        Some(Self { count, window, last_charge, carried: carried::read(numbers)? })
    }
}

impl FixedWindow {
    /// Returns what another window carries of this state at `seen`.
    #[cold]
    fn carry(&self, window: u64, seen: u64) -> Option<Box<Carried>> {
        if self.window == 0 {
            return None;
        }
        let step = |end| Ramp { hold: end, zero: end };
        let mut carried = self.carried.clone().unwrap_or_default();
        let end = next_edge(self.last_charge, self.window);
        carried.begin_counters(seen, end, |time| next_edge(time, window));
        let later = step(next_edge(self.last_charge, window));
        carried.bound_by(later);
        carried.add(self.count, step(end), later);
        carried.unexpired(seen)
    }
}
