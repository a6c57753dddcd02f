//! A compact log of charges, shared by the sliding log and the sliding buckets.
//!
//! A record is 10 bytes: its time (the stamp), and the total of all units charged up to and
//! including it. The units of any stretch of records are the difference of two totals, so binary
//! searches find what has left, what is free and how long a charge waits. Records of one stamp
//! merge.
//!
//! The stamp of a record is the time of its charges. Sliding buckets and logs with a high limit round it
//! up to the end of the bucket, so the stamp of the newest record can lie after the last charge. Charges before this stamp
//! join the newest record.
//!
//! Records keep their stamps when the window changes. A record counts for its *life*: the shorter of
//! the window under which it was charged, or the window of a later charge if that is shorter. When the
//! window grows, the records so far keep their life, and later ones have a longer life. So a log has at
//! most two lives, and the older records have the shorter one. If the window grows again while there are
//! two lives, all records so far get the longer of them: they leave late, never early.

use std::{cmp::Ordering, collections::VecDeque};

use super::{MemoryBudget, Refund, Snapshot};
use crate::decision::Mark;

/// Time modulo 2^48 microseconds (9 years, against windows of at most 400 days) and units
/// modulo 2^32 (against limits of at most 2^31), little-endian.
#[derive(Debug, Clone, Copy)]
struct Record([u8; 10]);

const TIME_BITS: u32 = 48;

/// The first record of a new log has the number `8 * (time of the charge % SEED_PERIOD_MICROS)`.
///
/// So a log that is created again after it was dropped has other numbers, and a receipt for the old log
/// matches no record of the new one. The numbers fit into the 6 bytes that Redis stores.
const SEED_PERIOD_MICROS: u64 = 1 << 44;

impl Record {
    fn new(stamp: u64, total: u32) -> Self {
        let mut bytes = [0; 10];
        bytes[..8].copy_from_slice(&stamp.to_le_bytes());
        bytes[6..].copy_from_slice(&total.to_le_bytes());
        Self(bytes)
    }

    fn time_bits(self) -> u64 {
        let [a, b, c, d, e, f, ..] = self.0;
        u64::from_le_bytes([a, b, c, d, e, f, 0, 0])
    }

    fn total(self) -> u32 {
        let [.., a, b, c, d] = self.0;
        u32::from_le_bytes([a, b, c, d])
    }
}

/// The log of one key.
#[derive(Debug, Default)]
pub(crate) struct Ring {
    /// Oldest first.
    records: VecDeque<Record>,
    /// The number of the oldest record. No two records of a key have the same number.
    head: u64,
    /// The running total before the oldest record.
    base: u32,
    /// The number of records at the front that have the life `old_life`.
    old_records: u32,
    /// The time of the last charge; records are dated relative to it.
    seen: u64,
    /// The window of the last charge, and the life of all records but the old ones.
    window: u64,
    old_life: u64,
}

/// A log as it stands at one time under one limit and window.
#[derive(Debug, Clone, Copy)]
pub(crate) struct TrailingWindow {
    limit: u64,
    /// The window of the quota.
    window: u64,
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
    pub(crate) fn limit(&self) -> u64 {
        self.limit
    }

    pub(crate) fn window(&self) -> u64 {
        self.window
    }
}

impl Ring {
    /// Returns a snapshot of the log at `now`. A charge at `time` has the stamp `stamp(time)`: `time`, or
    /// later if times are rounded up.
    pub(crate) fn trailing(
        &self,
        limit: u64,
        window: u64,
        now: u64,
        stamp: impl FnOnce(u64) -> u64,
    ) -> TrailingWindow {
        let seen = now.max(self.seen);
        let all_left = match window.cmp(&self.window) {
            Ordering::Less => stamp(self.seen) + window,
            Ordering::Equal => u64::MAX,
            Ordering::Greater => self.seen + self.window,
        };
        let mut trailing =
            TrailingWindow { limit, window, all_left, now, first: 0, base: self.base, used: 0 };
        // In most calls no record has left, or few at the front.
        if !self.records.is_empty() && self.leaves(&trailing, 0) <= seen {
            let has_left = |index| self.leaves(&trailing, index) <= seen;
            trailing.first = partition_point(1, self.records.len(), has_left);
            trailing.base = self.records[trailing.first - 1].total();
        }
        trailing.used = u64::from(self.total().wrapping_sub(trailing.base));
        trailing
    }

    /// Charges units. `stamp` is that of [`trailing`](Self::trailing).
    pub(crate) fn push(
        &mut self,
        trailing: &mut TrailingWindow,
        stamp: impl FnOnce(u64) -> u64,
        units: u64,
        budget: &dyn MemoryBudget,
    ) -> Mark {
        let before = self.heap_bytes();
        self.drop_expired(trailing);
        self.lower_newest(trailing);
        self.set_window(trailing.window);
        self.seen = self.seen.max(trailing.now);
        if self.records.is_empty() {
            self.head = self.head.max(self.seen % SEED_PERIOD_MICROS * 8);
        }
        let newest = self.records.back().map_or(0, |last| self.time(*last));
        let begins_life = self.old_records as usize == self.records.len();
        let stamp = if newest > self.seen { newest } else { stamp(self.seen) };
        // A forced charge stops counting where the running total would wrap.
        let units = units.min(u64::from(u32::MAX) - trailing.used) as u32;
        let record = Record::new(stamp, self.total().wrapping_add(units));
        if stamp == newest && !begins_life || !self.can_grow(budget) {
            // Records of one stamp and life are one record. If the memory budget is used up, the
            // newest record takes these units, their later time and their life: its units come back
            // late, never early.
            self.records.pop_back();
            self.old_records = self.old_records.min(self.records.len() as u32);
        }
        self.records.push_back(record);
        let after = self.heap_bytes();
        if after != before {
            budget.resized(before, after);
        }
        let (base, used) = (self.base, trailing.used + u64::from(units));
        *trailing = TrailingWindow { all_left: u64::MAX, first: 0, base, used, ..*trailing };
        Mark(self.head + self.records.len() as u64 - 1, 0, 0)
    }

    /// Refunds units of the record that the charge is in, if that still counts.
    pub(crate) fn refund(&mut self, trailing: &TrailingWindow, refund: &Refund) -> u64 {
        let TrailingWindow { first, base: mut before, .. } = *trailing;
        let Some(index) = refund.mark.0.checked_sub(self.head) else { return 0 };
        let index = usize::try_from(index).unwrap_or(usize::MAX);
        let Some(record) = self.records.get(index).copied() else { return 0 };
        if index < first {
            return 0;
        }
        if index > first {
            before = self.records[index - 1].total();
        }
        let units = refund.units.min(u64::from(record.total().wrapping_sub(before))) as u32;
        for record in self.records.range_mut(index..) {
            let total = record.total().wrapping_sub(units);
            record.0[6..].copy_from_slice(&total.to_le_bytes());
        }
        u64::from(units)
    }

    /// Treats all units as charged at `now` if the clock has been set back: the last charge is later
    /// than `now` by more than its window.
    #[inline]
    pub(crate) fn heal(&mut self, now: u64) {
        if self.seen > now + self.window {
            let record = Record::new(now, self.total());
            let others = self.records.len().saturating_sub(1);
            self.records.drain(..others);
            self.head += others as u64;
            self.records.iter_mut().for_each(|newest| *newest = record);
            (self.old_records, self.seen) = (0, now);
        }
    }

    /// Returns the time from which no record counts.
    pub(crate) fn expires_at(&self) -> u64 {
        self.records.back().map_or(0, |last| self.time(*last) + self.window)
    }

    /// Units that still count.
    pub(crate) fn outstanding(&self, now: u64) -> u64 {
        self.trailing(0, self.window, now, |time| time).used
    }

    pub(crate) fn heap_bytes(&self) -> usize {
        self.records.capacity() * size_of::<Record>()
    }

    /// Returns the stamp of a record: the time nearest to `seen` that has these low bits.
    fn time(&self, record: Record) -> u64 {
        let ahead = record.time_bits().wrapping_sub(self.seen) << (u64::BITS - TIME_BITS);
        let ahead = ahead.cast_signed() >> (u64::BITS - TIME_BITS);
        self.seen.saturating_add_signed(ahead)
    }

    fn total(&self) -> u32 {
        self.records.back().map_or(self.base, |last| last.total())
    }

    /// Drops the records that no longer count, and memory that only an earlier burst needed.
    fn drop_expired(&mut self, trailing: &TrailingWindow) {
        if trailing.first == 0 {
            return;
        }
        self.records.drain(..trailing.first);
        self.old_records = self.old_records.saturating_sub(trailing.first as u32);
        self.head += trailing.first as u64;
        self.base = trailing.base;
        if self.records.capacity() > 64 && self.records.len() < self.records.capacity() / 4 {
            self.records.shrink_to(self.records.len() * 2);
        }
    }

    /// Lowers the stamp of the newest record if it leaves sooner under the window of a new charge. All
    /// other records are older.
    fn lower_newest(&mut self, trailing: &TrailingWindow) {
        let latest = trailing.all_left - self.window.min(trailing.window);
        if let Some(last) = self.records.back().copied()
            && self.time(last) > latest
        {
            self.records.pop_back();
            self.records.push_back(Record::new(latest, last.total()));
        }
    }

    /// Gives the records their life under the window of a new charge.
    fn set_window(&mut self, window: u64) {
        if window > self.window {
            (self.old_records, self.old_life) = (self.records.len() as u32, self.window);
        } else if window <= self.old_life {
            self.old_records = 0;
        }
        self.window = window;
    }

    /// Returns the time at which a record stops counting under the window of a quota.
    #[inline]
    fn leaves(&self, trailing: &TrailingWindow, index: usize) -> u64 {
        let is_old = index < self.old_records as usize;
        let life = if is_old { self.old_life } else { self.window };
        (self.time(self.records[index]) + life.min(trailing.window)).min(trailing.all_left)
    }

    /// Reserves memory for one more record, in small steps; returns whether the budget allows it.
    fn can_grow(&mut self, budget: &dyn MemoryBudget) -> bool {
        if self.records.len() < self.records.capacity() {
            return true;
        }
        let more = (self.records.len() / 8).max(4);
        // The first record has none to merge with, so it is always allowed.
        if budget.allows(more * size_of::<Record>()) || self.records.is_empty() {
            self.records.reserve_exact(more);
            return true;
        }
        false
    }

    /// Returns the wait in microseconds until `units` are free.
    pub(crate) fn wait(&self, trailing: &TrailingWindow, units: u64) -> u64 {
        let TrailingWindow { limit, now, first, base, used, .. } = *trailing;
        let must_leave = (used + units).saturating_sub(limit);
        if must_leave == 0 {
            return 0;
        }
        let too_few =
            |index: usize| u64::from(self.records[index].total().wrapping_sub(base)) < must_leave;
        // Most often the oldest record suffices, or, for all units to be free, it takes the newest.
        let newest = self.records.len() - 1;
        let index = match first {
            _ if !too_few(first) => first,
            _ if too_few(newest - 1) => newest,
            _ => partition_point(first, newest, too_few),
        };
        self.leaves(trailing, index).saturating_sub(now)
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
    #[inline]
    fn free(&self) -> u64 {
        self.limit.saturating_sub(self.used)
    }
}
