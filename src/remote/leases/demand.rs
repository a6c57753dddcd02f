//! The demand for the units of one key in this process, and the search for keys with demand.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use super::super::fingerprint::Fingerprint;

/// A moving average of the checks of a key, and of the units that they cost.
///
/// Time is divided into intervals. The average over the intervals gives the last one a weight of a
/// half. So the demand follows a change within a few intervals, and a key that is no longer checked
/// loses half of it in each.
#[derive(Debug, Clone)]
pub(super) struct Demand {
    interval: u64,
    /// The time at which the current interval began.
    start: u64,
    current: Count,
    average: Count,
}

/// A number of checks and the units that they cost, each times [`SCALE`].
#[derive(Debug, Clone, Copy, Default)]
struct Count {
    checks: u64,
    units: u64,
}

/// The demand that is expected in one interval.
#[derive(Debug, Clone, Copy)]
pub(super) struct Expected(Count);

/// The scale of the fixed-point numbers.
const SCALE: u64 = 256;

/// The fewest checks in an interval, on average, for a key to be leased. A renewal then takes the place
/// of several checks.
pub(super) const MIN_CHECKS: u64 = 4;

/// A key with this many checks in one interval is leased at once, before its average shows the demand. A
/// random burst of a quiet key has fewer.
pub(super) const BURST_CHECKS: u64 = 16;

impl Demand {
    /// Creates the demand of a key that has not been checked. `interval` is in microseconds and at
    /// least 1.
    pub(super) fn new(interval: u64, now: u64) -> Self {
        Self { interval, start: now, current: Count::default(), average: Count::default() }
    }

    /// Counts a check that costs `cost` units, whether it is admitted or denied.
    pub(super) fn observe(&mut self, now: u64, cost: u64) {
        self.advance(now);
        self.current.checks = self.current.checks.saturating_add(SCALE);
        self.current.units = self.current.units.saturating_add(cost.saturating_mul(SCALE));
    }

    /// Returns the demand that is expected in the interval from `now` on: the average, or the demand of the
    /// current interval if it is higher already.
    pub(super) fn expected(&mut self, now: u64) -> Expected {
        self.advance(now);
        let Self { average, current, .. } = *self;
        Expected(if current.units > average.units { current } else { average })
    }

    /// Returns whether the key has so much demand that it is leased.
    pub(super) fn is_busy(&mut self, now: u64) -> bool {
        self.advance(now);
        self.average.checks >= MIN_CHECKS * SCALE || self.current.checks >= BURST_CHECKS * SCALE
    }

    /// Returns whether the key has so little demand that it will not be leased soon.
    pub(super) fn is_cold(&mut self, now: u64) -> bool {
        self.advance(now);
        // The average is half of the demand after the first interval.
        self.average.checks.max(self.current.checks) < MIN_CHECKS * SCALE / 2
    }

    fn advance(&mut self, now: u64) {
        if now.saturating_sub(self.start) >= self.interval {
            self.begin_interval(now);
        }
    }

    fn begin_interval(&mut self, now: u64) {
        let elapsed = (now - self.start) / self.interval;
        let idle = (elapsed - 1).min(63);
        let Self { average, current, .. } = *self;
        self.average = Count {
            checks: mean(average.checks, current.checks) >> idle,
            units: mean(average.units, current.units) >> idle,
        };
        self.current = Count::default();
        self.start += elapsed * self.interval;
    }
}

/// Returns the mean of two numbers, rounded up, so that the average reaches a steady demand.
fn mean(one: u64, other: u64) -> u64 {
    one / 2 + other / 2 + (one % 2).max(other % 2)
}

impl Expected {
    /// Returns the number of units, rounded up.
    pub(super) fn units(self) -> u64 {
        self.0.units.div_ceil(SCALE)
    }

    /// Returns the mean cost of a check, rounded up, at least 1.
    pub(super) fn mean_cost(self) -> u64 {
        self.0.units.div_ceil(self.0.checks.max(1)).max(1)
    }

    /// Returns whether the mean cost of a check is at most `units`. Divides nothing.
    pub(super) fn costs_at_most(self, units: u64) -> bool {
        self.0.units.max(1) <= units.saturating_mul(self.0.checks.max(1))
    }
}

/// The recent checks of keys that are not leased. A key costs no more than one slot, and a key that
/// comes to the slot of another one replaces it.
///
/// A slot has a part of the fingerprint (24 bits), a number of checks (8 bits), and the time of the
/// first of them (32 bits, in microseconds). If two threads write a slot at the same time, a check may
/// not be counted.
#[derive(Debug)]
pub(super) struct Candidates(Box<[AtomicU64]>);

/// The number of slots: 128 KiB of them.
const SLOTS: usize = 1 << 14;

/// A key with this many checks in one refresh time gets a stock, which measures its demand. It is one more
/// than a [leased](MIN_CHECKS) key has on average.
pub(super) const BUSY_CHECKS: u64 = MIN_CHECKS + 1;

impl Candidates {
    pub(super) fn new() -> Self {
        Self((0..SLOTS).map(|_| AtomicU64::new(0)).collect())
    }

    /// Counts a check of a key. Returns whether the key is busy.
    pub(super) fn observe(&self, fingerprint: Fingerprint, now: u64, refresh: u64) -> bool {
        let Fingerprint(low, high) = fingerprint;
        let slot = &self.0[low as usize % SLOTS];
        let tag = high >> 40;
        let now = now as u32;
        let old = slot.load(Relaxed);
        let old_start = old as u32;
        let is_same = old >> 40 == tag && u64::from(now.wrapping_sub(old_start)) <= refresh;
        let (checks, start) = if is_same { ((old >> 32 & 0xff) + 1, old_start) } else { (1, now) };
        let is_busy = checks >= BUSY_CHECKS;
        let new = if is_busy { 0 } else { tag << 40 | checks << 32 | u64::from(start) };
        slot.store(new, Relaxed);
        is_busy
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Checks of `cost` units, `count` of them in each interval of 100 from `from` to `to`.
    fn run(demand: &mut Demand, (from, to): (u64, u64), count: u64, cost: u64) {
        for interval in from / 100..to / 100 {
            (0..count).for_each(|it| demand.observe(interval * 100 + it * 100 / count, cost));
        }
    }

    #[test]
    fn follows_a_steady_rate() {
        let mut demand = Demand::new(100, 0);
        run(&mut demand, (0, 2_000), 10, 3);
        assert_eq!(demand.expected(2_000).units(), 30);
        assert_eq!(demand.expected(2_000).mean_cost(), 3);
    }

    #[test]
    fn the_mean_cost_of_equal_checks_is_their_cost() {
        for (count, cost) in [(5, 1), (50, 1), (7, 100), (333, 12_345)] {
            let mut demand = Demand::new(1_000_000, 0);
            for interval in 0..20 {
                (0..count).for_each(|it| demand.observe(interval * 1_000_000 + it, cost));
                let expected = demand.expected(interval * 1_000_000 + count);
                assert_eq!(expected.mean_cost(), cost, "{count} checks, interval {interval}");
                assert!(expected.costs_at_most(cost) && !expected.costs_at_most(cost - 1));
            }
        }
    }

    #[test]
    fn a_burst_counts_at_once() {
        let mut demand = Demand::new(100, 0);
        (0..15).for_each(|_| demand.observe(5, 2));
        assert!(!demand.is_busy(5));
        (0..35).for_each(|_| demand.observe(5, 2));
        assert!(demand.is_busy(5));
        assert_eq!((demand.expected(5).units(), demand.expected(5).mean_cost()), (100, 2));
    }

    #[test]
    fn a_steady_demand_is_busy_from_four_checks_in_an_interval_on() {
        for (count, is_busy) in [(3, false), (4, true)] {
            let mut demand = Demand::new(100, 0);
            run(&mut demand, (0, 2_000), count, 1);
            assert_eq!(demand.is_busy(2_000), is_busy, "{count}");
            assert!(!demand.is_cold(2_000), "{count}");
        }
        for (count, is_cold) in [(1, true), (2, false)] {
            let mut demand = Demand::new(100, 0);
            run(&mut demand, (0, 2_000), count, 1);
            assert_eq!(demand.is_cold(2_000), is_cold, "{count}");
        }
    }

    #[test]
    fn the_average_is_expected_until_the_current_interval_has_more_units() {
        let mut demand = Demand::new(100, 0);
        run(&mut demand, (0, 2_000), 10, 1);
        let mean_costs = [10, 1].map(|cost| {
            demand.observe(2_000, cost);
            demand.expected(2_000).mean_cost()
        });
        assert_eq!(mean_costs, [1, 6]);
    }

    #[test]
    fn halves_in_each_idle_interval() {
        let mut demand = Demand::new(100, 0);
        run(&mut demand, (0, 2_000), 16, 1);
        assert_eq!(demand.expected(2_100).units(), 8);
        assert_eq!(demand.expected(2_300).units(), 2);
        assert_eq!(demand.expected(1_000_000).units(), 0);
    }

    #[test]
    fn a_key_is_busy_after_four_more_checks_within_the_refresh_time() {
        let candidates = Candidates::new();
        let key = Fingerprint(5, 7 << 40);
        for (now, is_busy) in [
            (0, false),
            (50, false),
            (101, false),
            (120, false),
            (150, false),
            (160, false),
            (201, true),
        ] {
            assert_eq!(candidates.observe(key, now, 100), is_busy, "at {now}");
        }
        assert!(!candidates.observe(key, 202, 100), "counted anew");
    }

    #[test]
    fn keys_of_one_slot_do_not_count_for_each_other() {
        let candidates = Candidates::new();
        let keys = [7, 8].map(|tag| Fingerprint(5, tag << 40));
        assert!((0..10).all(|now| keys.iter().all(|key| !candidates.observe(*key, now, 100))));
    }
}
