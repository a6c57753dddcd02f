//! A compact log of charges, shared by the sliding log and the sliding buckets.
//!
//! A record is 10 bytes: its time (the stamp), and the total of all units charged up to and
//! including it. The units of any stretch of records are the difference of two totals, so binary
//! searches find what has left, what is free and how long a charge waits. Records of one stamp
//! merge.
//!
//! The stamp of a record is the time of its charges. Sliding buckets, and logs with a high limit or many
//! records, round it up to the end of the bucket, so the stamp of the newest record can lie after the last
//! charge. Charges before this stamp count in the newest record.
//!
//! Records keep their stamps when the window changes. A record counts for its *life*: the shorter of
//! the window under which it was charged, or the window of a later charge if that is shorter. When the
//! window grows, the records so far keep their life, and later ones have a longer life. So a log has at
//! most two lives, and the older records have the shorter one. If the window grows again while there are
//! two lives, all records so far get the longer of them: they leave late, never early.

//!
//! # Sliding log
//!
//! Admits at most `limit` units in any window, and keeps at most 20,001 records.
//!
//! Up to a limit of 10,000, times are exact. Above it they are rounded up to the next of 10,000 edges a
//! window, as by `SlidingBuckets(10_000)`, so a unit comes back up to `window / 10_000` late. A window of up to
//! 10 ms holds no more than 10,000 microseconds, so its times are always exact.
//!
//! A record stays when its units are refunded, and forced charges exceed the limit. So a log of any limit
//! can come to hold 10,000 records; while it does, times are rounded as above a limit of 10,000. Such a log
//! has at most 10,000 records of exact times and 10,001 of rounded ones. Without refunds and forced charges
//! it has at most 10,001.
//!
//! Under a [concurrency limit](crate::Quota::concurrent) the window is the expiry, and a unit is refunded
//! when its work has ended. The oldest records leave as soon as all their units are refunded, so such a log
//! has the records since the oldest unit in flight.
//!
//! # Sliding buckets
//!
//! A sliding log whose times are rounded up to the next of `n` edges a window. It admits at most `limit` units in any
//! window, and keeps at most `n + 1` records. A unit comes back up to `window / n` late.
//!
//! # Changing a quota
//!
//! - A new *limit* applies at once to all units that still count. If it needs another resolution, records
//!   keep their stamps, and charges before the stamp of the newest record count in it.
//! - A new number of buckets applies to the charges after the bucket that is open.
//! - After a change of the *window* each charge counts for its own window, or for the window of a later
//!   charge if that is shorter, from its stamp on.
//!   - If the window grows, the open bucket ends at the key's last charge.
//!   - If the window shrinks, the open bucket ends at its end under the old quota, or at the end of the
//!     new bucket that holds the key's last charge, whichever is earlier. Example: a charge at second 30
//!     is in the bucket that ends at 60. Under a new quota with buckets of 10 s it ends at 40. Charges
//!     until then count in the bucket. Each of them lies before the end, so it counts for the whole new
//!     window.
//! - The bound holds from the change on for the units charged after it, because each of them counts
//!   for the whole new window. Once one new window has passed, it holds for all units.

use std::cmp::Ordering;

use super::{
    MemoryBudget, Refund, Snapshot, StateMachine, Stored,
    bytes::Numbers,
    math::bucket_end,
    packed_log::{LogHeader, PackedLog, Record, Records, TIME_BITS},
};
use crate::{
    clock::Timestamp,
    decision::Mark,
    quota::{Algorithm, Quota},
};

/// The most records of a sliding log before its times are rounded, and then the edges in a window. The Lua
/// twins are `sliding_log.lua` and `ring.lua`.
const RECORDS: u64 = 10_000;

/// The first record of a new log has the number `8 * (time of the charge % SEED_PERIOD_MICROS)`.
///
/// So a log that is created again after it was dropped has other numbers, and a receipt for the old log
/// matches no record of the new one. The numbers fit into the 6 bytes that Redis stores.
const SEED_PERIOD_MICROS: u64 = 1 << 44;

/// A log grows by a part of its records, 1 in this number (`benches/memory.rs`).
const GROWTH_FRACTION: usize = 32;
/// The minimum number of records by which a log grows.
const MIN_GROWTH: usize = 4;

/// The log of one key.
#[cfg_attr(test, derive(Clone))]
#[derive(Debug, Default)]
pub(crate) struct Ring(PackedLog);

/// A log as it stands at one time under one limit and window.
#[derive(Debug, Clone, Copy)]
pub(crate) struct TrailingWindow {
    log: LogHeader,
    limit: u64,
    /// The window of the quota.
    window: u64,
    /// The edges in a window to which times are rounded up, 0 if they are exact.
    edges: u64,
    /// The time by which all records have left if the window has changed since the last charge, and
    /// `u64::MAX` otherwise. If the window has grown, the open bucket ends at the last charge, and its
    /// units leave one old window later. If the window has shrunk, they leave no later than a charge
    /// that is made under the new window at the time of the last charge.
    all_left: u64,
    now: u64,
    /// The first record that still counts, and the running total before it.
    first: usize,
    base: u32,
    /// Units that still count.
    used: u64,
}

impl TrailingWindow {
    /// Returns the number of records that still count.
    pub(super) fn records(&self) -> u64 {
        u64::from(self.log.len) - self.first as u64
    }

    /// Returns the time at which a record stops counting under the window of the quota.
    fn leaves(&self, records: Records<'_>, index: usize) -> u64 {
        let is_old = index < self.log.old_records as usize;
        let life = if is_old { self.log.old_life } else { self.log.window };
        (self.log.time(records.get(index)) + life.min(self.window)).min(self.all_left)
    }
}

impl LogHeader {
    /// Returns the stamp of a record: the time nearest to `seen` that has these low bits.
    fn time(&self, record: Record) -> u64 {
        let ahead = record.time_bits().wrapping_sub(self.seen) << (u64::BITS - TIME_BITS);
        let ahead = ahead.cast_signed() >> (u64::BITS - TIME_BITS);
        self.seen.saturating_add_signed(ahead)
    }

    /// Returns the running total of all records.
    fn total(&self, records: Records<'_>) -> u32 {
        records.newest().map_or(self.base, Record::total)
    }

    /// Gives the records their life under the window of a new charge.
    fn set_window(&mut self, window: u64) {
        if window > self.window {
            (self.old_records, self.old_life) = (self.len, self.window);
        } else if window <= self.old_life {
            self.old_records = 0;
        }
        self.window = window;
    }
}

impl Stored for Ring {
    /// Treats all units as charged at `now` if the clock has been set back: the last charge is later
    /// than `now` by more than its window.
    fn heal(&mut self, now: Timestamp) {
        let (seen, window, _) = self.0.last_charge();
        if seen > now.as_micros() + window {
            self.move_to(now.as_micros());
        }
    }

    /// Refunds units of the record that the charge is in, if that still counts.
    fn refund(&mut self, quota: &Quota, now: Timestamp, refund: &Refund) -> u64 {
        let TrailingWindow { ref log, first, base, .. } = self.snapshot(quota, now);
        self.subtract(log, first, base, refund.mark, refund.units)
    }

    /// Subtracts the units even if they no longer count. That does not change the units that count.
    fn release(&mut self, mark: Mark, units: u64) {
        let log = self.0.header();
        self.subtract(&log, 0, log.base, mark, units);
    }

    fn expires_at(&self) -> Timestamp {
        let log = self.0.header();
        let newest = self.0.records(&log).newest();
        Timestamp::from_micros(newest.map_or(0, |last| log.time(last) + log.window))
    }

    fn outstanding(&self, now: Timestamp) -> u64 {
        let (_, window, _) = self.0.last_charge();
        self.trailing(0, window, 0, now.as_micros(), false).used
    }

    fn heap_bytes(&self) -> usize {
        self.0.heap_bytes()
    }

    fn write(&self, bytes: &mut Vec<u8>) {
        self.0.write_all(bytes);
    }
}

impl StateMachine for Ring {
    type Snapshot = TrailingWindow;

    fn snapshot(&self, quota: &Quota, now: Timestamp) -> TrailingWindow {
        let window = quota.window_micros();
        let in_flight = quota.is_concurrent();
        self.trailing(quota.limit(), window, edges(quota), now.as_micros(), in_flight)
    }

    fn wait(&self, trailing: &TrailingWindow, units: u64) -> u64 {
        let TrailingWindow { ref log, limit, now, first, base, used, .. } = *trailing;
        let must_leave = (used + units).saturating_sub(limit);
        if must_leave == 0 {
            return 0;
        }
        let records = self.0.records(log);
        let too_few =
            |index: usize| u64::from(records.get(index).total().wrapping_sub(base)) < must_leave;
        // Most often the oldest record suffices, or, for all units to be free, it takes the newest.
        let newest = log.len as usize - 1;
        let index = match first {
            _ if !too_few(first) => first,
            _ if too_few(newest - 1) => newest,
            _ => partition_point(first, newest, too_few),
        };
        trailing.leaves(records, index).saturating_sub(now)
    }

    fn charge(
        &mut self,
        trailing: &mut TrailingWindow,
        units: u64,
        budget: &dyn MemoryBudget,
    ) -> Mark {
        Mark([self.push(trailing, units, budget), 0, 0])
    }

    fn returned_at(quota: &Quota, time: u64) -> Option<u64> {
        let window = quota.window_micros();
        Some(rounded_up(window, edges(quota), time) + window)
    }

    fn read(numbers: &mut Numbers<'_>) -> Option<Self> {
        PackedLog::read_all(numbers).map(Self)
    }
}

/// Returns the edges in a window to which the times of a log are rounded up, 0 if they are exact.
fn edges(quota: &Quota) -> u64 {
    match quota.algorithm() {
        Algorithm::SlidingBuckets(n) => n.into(),
        _ if quota.limit() > RECORDS && quota.window_micros() > RECORDS => RECORDS,
        _ => 0,
    }
}

fn rounded_up(window: u64, edges: u64, time: u64) -> u64 {
    if edges == 0 { time } else { bucket_end(window, edges, time) }
}

impl Ring {
    /// Returns a snapshot of the log at `now`. A log of units in flight passes over its
    /// [refunded](first_in_flight) records.
    fn trailing(
        &self,
        limit: u64,
        window: u64,
        edges: u64,
        now: u64,
        is_in_flight: bool,
    ) -> TrailingWindow {
        let log = self.0.header();
        let records = self.0.records(&log);
        let seen = now.max(log.seen);
        let all_left = match window.cmp(&log.window) {
            Ordering::Less => rounded_up(window, edges, log.seen) + window,
            Ordering::Equal => u64::MAX,
            Ordering::Greater => log.seen + log.window,
        };
        let base = log.base;
        let mut trailing =
            TrailingWindow { log, limit, window, edges, all_left, now, first: 0, base, used: 0 };
        // In most calls no record has left, or few at the front.
        if log.len > 0 && trailing.leaves(records, 0) <= seen {
            trailing.first = partition_point(1, log.len as usize, |index| {
                trailing.leaves(records, index) <= seen
            });
            trailing.base = records.get(trailing.first - 1).total();
        }
        trailing.used = u64::from(log.total(records).wrapping_sub(trailing.base));
        if is_in_flight {
            let TrailingWindow { first, base, .. } = trailing;
            trailing.first = first_in_flight(records, first, log.len as usize, base);
        }
        trailing
    }

    /// Charges units, and returns the number of their record.
    fn push(
        &mut self,
        trailing: &mut TrailingWindow,
        units: u64,
        budget: &dyn MemoryBudget,
    ) -> u64 {
        let before = self.heap_bytes();
        let window = trailing.window;
        let is_full = trailing.records() >= RECORDS && window > RECORDS;
        let edges = if trailing.edges == 0 && is_full { RECORDS } else { trailing.edges };
        self.drop_expired(trailing);
        self.lower_newest(trailing);
        let log = &mut trailing.log;
        log.set_window(window);
        log.seen = log.seen.max(trailing.now);
        if log.len == 0 {
            log.head = log.head.max(log.seen % SEED_PERIOD_MICROS * 8);
        }
        let records = self.0.records(log);
        let newest = records.newest().map_or(0, |last| log.time(last));
        let begins_life = log.old_records == log.len;
        let stamp = if newest > log.seen { newest } else { rounded_up(window, edges, log.seen) };
        // A forced charge stops counting where the running total would wrap.
        let units = units.min(u64::from(u32::MAX) - trailing.used) as u32;
        let record = Record::new(stamp, log.total(records).wrapping_add(units));
        if stamp == newest && !begins_life || !self.can_grow(log, trailing.limit, budget) {
            // Records of one stamp and life are one record. If the memory budget is used up, the
            // newest record takes these units, their later time and their life: its units come back
            // late, never early.
            log.len -= 1;
            log.old_records = log.old_records.min(log.len);
        }
        self.0.set(log.len, record);
        log.len += 1;
        self.0.write(log);
        let after = self.heap_bytes();
        if after != before {
            budget.resized(before, after);
        }
        (trailing.all_left, trailing.first, trailing.base) = (u64::MAX, 0, log.base);
        trailing.used += u64::from(units);
        log.head + u64::from(log.len) - 1
    }

    /// Subtracts units from the record with this mark, if it is not before `first`. `before` is the running
    /// total before `first`.
    fn subtract(
        &mut self,
        log: &LogHeader,
        first: usize,
        mut before: u32,
        mark: Mark,
        units: u64,
    ) -> u64 {
        let Some(index) = mark.0[0].checked_sub(log.head) else { return 0 };
        let index = usize::try_from(index).unwrap_or(usize::MAX);
        if index < first || index >= log.len as usize {
            return 0;
        }
        let records = self.0.records(log);
        if index > first {
            before = records.get(index - 1).total();
        }
        let held = records.get(index).total().wrapping_sub(before);
        let units = units.min(u64::from(held)) as u32;
        for index in index..log.len as usize {
            let record = self.0.records(log).get(index);
            self.0.set(index as u32, record.without(units));
        }
        u64::from(units)
    }

    /// Treats all units as charged at `now`.
    fn move_to(&mut self, now: u64) {
        let mut log = self.0.header();
        if let Some(newest) = self.0.records(&log).newest() {
            let others = log.len - 1;
            self.0.drop_oldest(&mut log, others);
            self.0.set(0, Record::new(now, newest.total()));
        }
        (log.old_records, log.seen) = (0, now);
        self.0.write(&mut log);
    }

    /// Drops the records that no longer count, and memory that only an earlier burst needed.
    fn drop_expired(&mut self, trailing: &mut TrailingWindow) {
        let TrailingWindow { log, first, base, .. } = trailing;
        if *first == 0 {
            return;
        }
        self.0.drop_oldest(log, *first as u32);
        log.base = *base;
        let len = log.len as usize;
        let capacity = self.0.capacity();
        if capacity > 64 && len < capacity / 4 {
            self.0.resize(log, (len * 2).max(MIN_GROWTH));
        }
    }

    /// Lowers the stamp of the newest record if it leaves sooner under the window of a new charge. All
    /// other records are older.
    fn lower_newest(&mut self, trailing: &TrailingWindow) {
        let TrailingWindow { log, window, all_left, .. } = trailing;
        let latest = all_left - log.window.min(*window);
        if let Some(last) = self.0.records(log).newest()
            && log.time(last) > latest
        {
            self.0.set(log.len - 1, Record::new(latest, last.total()));
        }
    }

    /// Makes room for one more record, in small steps, the last of which ends at the limit: more records are rare.
    /// Returns whether the budget allows it.
    fn can_grow(&mut self, log: &mut LogHeader, limit: u64, budget: &dyn MemoryBudget) -> bool {
        // The first record always has room, so there is a record to merge with if the budget is used up.
        if self.0.has_room(log) {
            return true;
        }
        let len = log.len as usize;
        let capacity = match len + (len / GROWTH_FRACTION).max(MIN_GROWTH) {
            capacity if (len as u64) < limit => capacity.min(limit as usize),
            capacity => capacity,
        };
        let allowed = budget.allows(PackedLog::heap_bytes_of(capacity) - self.heap_bytes());
        if allowed {
            self.0.resize(log, capacity);
        }
        allowed
    }
}

/// Passes over the oldest records whose units were all refunded, from `first` to the end at `len`. `base` is
/// the running total before them. Returns the first record that is left. The next charge drops the others, so
/// that a log of units in flight is no longer than the time of the oldest one.
fn first_in_flight(records: Records<'_>, first: usize, len: usize, base: u32) -> usize {
    if first < len && records.get(first).total() == base {
        partition_point(first + 1, len, |index| records.get(index).total() == base)
    } else {
        first
    }
}

/// Returns the first index in `low..high` for which `before` is false, or `high`. It is true for all
/// indices before that.
fn partition_point(mut low: usize, mut high: usize, before: impl Fn(usize) -> bool) -> usize {
    while low < high {
        let middle = low.midpoint(high);
        if before(middle) { low = middle + 1 } else { high = middle }
    }
    low
}

impl Snapshot for TrailingWindow {
    fn free(&self) -> u64 {
        self.limit.saturating_sub(self.used)
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use proptest::prelude::*;

    use super::*;
    use crate::{algorithm::UnlimitedMemory, seed};

    /// A budget that allows growth while it is switched on.
    struct Switch(Cell<bool>);

    impl MemoryBudget for Switch {
        fn allows(&self, _: usize) -> bool {
            self.0.get()
        }

        fn resized(&self, _: usize, _: usize) {}
    }

    fn used(ring: &Ring, window: u64, now: u64) -> u64 {
        ring.trailing(u64::MAX, window, 0, now, false).used
    }

    fn charge(ring: &mut Ring, window: u64, now: u64, units: u64, budget: &dyn MemoryBudget) {
        let mut trailing = ring.trailing(u64::MAX, window, 0, now, false);
        ring.push(&mut trailing, units, budget);
    }

    #[test]
    fn units_come_back_late_and_never_early_if_memory_is_refused() {
        let steps = prop::collection::vec((0..60_u64, 1..5_u64, 0..3_usize, any::<bool>()), 0..30);
        seed::property("refused", ProptestConfig::default(), steps, |steps| {
            let (mut full, mut merged) = (Ring::default(), Ring::default());
            let (budget, mut now) = (Switch(Cell::new(true)), 1_000_000);
            for (by, units, window, allows) in steps {
                now += by;
                let window = [50, 100, 200][window];
                budget.0.set(allows);
                charge(&mut full, window, now, units, &UnlimitedMemory);
                charge(&mut merged, window, now, units, &budget);
                for later in (now..now + 200).step_by(10) {
                    let (full, merged) = (used(&full, window, later), used(&merged, window, later));
                    prop_assert!(full <= merged, "{full} units at {later}, but {merged}");
                }
                prop_assert_eq!(used(&merged, window, now + 200), 0);
            }
            Ok(())
        });
    }
}
