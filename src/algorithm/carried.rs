//! Units that a key spent under earlier windows, for the two algorithms that count by periods.
//!
//! A counter does not know when its units were charged. So after a change of the window, the units that counted
//! at the last charge are *carried* as one number. They count as if all of them had been charged at that time,
//! and leave by the rule of the old window or of the new one: the one by which the last unit leaves first.

use super::{
    MemoryBudget,
    bytes::{MAX_NUMBER, Numbers, write_numbers},
    math::mul_div_ceil,
};

/// A weight over time: all until `hold`, none from `zero` on, and evenly less in between.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Ramp {
    pub(super) hold: u64,
    pub(super) zero: u64,
}

impl Ramp {
    /// Returns how many of `units` count at `now`, rounded up.
    pub(super) fn weight(self, units: u64, now: u64) -> u64 {
        if units == 0 || now >= self.zero {
            0
        } else if now <= self.hold {
            units
        } else {
            mul_div_ceil(units, self.zero - now, self.zero - self.hold)
        }
    }
}

/// The record of earlier windows that a key keeps beside its counters.
///
/// If the window changes and changes back within one period, two counters have the same window and the same
/// period. The *generation* tells them apart: it is part of the [mark](crate::decision::Mark) of a charge, and
/// a charge of an earlier generation is not refunded.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Carried {
    /// The time of the first charge under the window of the counters, or a little later. It rises with each
    /// change of the window, and is never 0.
    generation: u64,
    /// The time from which the record is not needed: no unit of an earlier generation counts under its own
    /// window, and the units of the period in which this generation lies weigh nothing.
    until: u64,
    units: u64,
    ramp: Ramp,
}

/// A key whose window has not changed for long has no record.
pub(super) type Record = Option<Box<Carried>>;

impl Carried {
    /// Returns what a record says. A key without a record carries nothing.
    pub(super) fn of(record: &Record) -> Self {
        record.as_deref().copied().unwrap_or_default()
    }

    /// Carries `units`, which counted at the last charge, to a new window at `now`. `self` is the record so far.
    /// `old` and `new` are the rules of a charge at the time of the last one, under the old and the new window.
    /// `zero(time)` is the time from which a charge at `time` weighs nothing under the new window.
    ///
    /// After several changes in a microsecond, the generation is later than `now`, and may lie in the next
    /// period. The record is kept until the units of that period weigh nothing.
    pub(super) fn next(
        self,
        now: u64,
        units: u64,
        [old, new]: [Ramp; 2],
        zero: impl Fn(u64) -> u64,
    ) -> Self {
        let generation = now.max(self.generation + 1);
        let until = self.until.max(old.zero).max(zero(generation));
        let ramp = if new.zero < old.zero { new } else { old };
        Self { generation, until, units, ramp }
    }

    /// Returns how many units count at `now`.
    pub(super) fn weight(&self, now: u64) -> u64 {
        self.ramp.weight(self.units, now)
    }

    /// Returns the time from which no carried unit counts, 0 if none is carried.
    pub(super) fn end(&self) -> u64 {
        self.ramp.zero
    }

    /// Returns the time from which the record is not needed.
    pub(super) fn until(&self) -> u64 {
        self.until
    }

    /// Returns the generation of the counter of the period from `start` on, or 0 if the window has not changed
    /// since `start`.
    pub(super) fn generation(&self, start: u64) -> u64 {
        if self.generation >= start { self.generation } else { 0 }
    }

    /// Stores the record, if it is still needed at `now`.
    pub(super) fn store(self, record: &mut Record, now: u64, budget: &dyn MemoryBudget) {
        if record.is_none() && self == Self::default() {
            return;
        }
        let before = heap_bytes(record);
        *record = (now < self.until).then(|| Box::new(self));
        budget.resized(before, heap_bytes(record));
    }

    /// Appends the record to the bytes of its state.
    pub(super) fn write(self, bytes: &mut Vec<u8>) {
        let Self { generation, until, units, ramp } = self;
        match generation {
            0 => write_numbers(bytes, [0]),
            _ => write_numbers(bytes, [generation, until, units, ramp.hold, ramp.zero]),
        }
    }

    /// Reads a record from the numbers of its state.
    pub(super) fn read(numbers: &mut Numbers<'_>) -> Option<Record> {
        let generation = numbers.next(MAX_NUMBER)?;
        if generation == 0 {
            return Some(None);
        }
        let until = numbers.next(MAX_NUMBER)?;
        let units = numbers.next(MAX_NUMBER)?;
        let ramp = Ramp { hold: numbers.next(MAX_NUMBER)?, zero: numbers.next(MAX_NUMBER)? };
        Some(Some(Box::new(Self { generation, until, units, ramp })))
    }
}

/// Returns the heap memory of a record, in bytes.
pub(super) fn heap_bytes(record: &Record) -> usize {
    record.as_deref().map_or(0, size_of_val)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn step(end: u64) -> Ramp {
        Ramp { hold: end, zero: end }
    }

    #[test]
    fn units_leave_by_the_rule_that_ends_first() {
        let (old, new) = (Ramp { hold: 100, zero: 200 }, Ramp { hold: 150, zero: 180 });
        for rules in [[old, new], [new, old]] {
            let carried = Carried::default().next(50, 30, rules, |time| time + 500);
            let weights = [149, 150, 151, 179, 180].map(|now| carried.weight(now));
            assert_eq!(weights, [30, 30, 29, 1, 0]);
            assert_eq!((carried.end(), carried.until), (180, 550));
        }
        assert_eq!([99, 100].map(|now| step(100).weight(7, now)), [7, 0]);
    }

    #[test]
    fn a_generation_rises_with_each_change_and_stays_while_its_period_counts() {
        let mut carried = Carried::default();
        let generations = [0, 0, 7, 7, 5].map(|now| {
            carried = carried.next(now, 1, [step(10 * now), step(90)], |time| 50 + time);
            (carried.generation, carried.until)
        });
        assert_eq!(generations, [(1, 51), (2, 52), (7, 70), (8, 70), (9, 70)]);
        assert_eq!([0, 9, 10].map(|start| carried.generation(start)), [9, 9, 0]);
        assert_eq!(Carried::of(&None).generation(0), 0);
    }

    /// A budget that knows how much memory is in use.
    #[derive(Default)]
    struct Used(std::cell::Cell<usize>);

    impl MemoryBudget for Used {
        fn allows(&self, _: usize) -> bool {
            true
        }

        fn resized(&self, before: usize, after: usize) {
            self.0.set(self.0.get() + after - before);
        }
    }

    #[test]
    fn a_record_is_stored_until_it_is_not_needed_and_its_memory_is_counted() {
        let (mut record, used) = (None, Used::default());
        let carried = Carried::default().next(5, 1, [step(10), step(20)], |_| 30);
        for (now, bytes) in [(5, 40), (29, 40), (30, 0), (31, 0)] {
            carried.store(&mut record, now, &used);
            assert_eq!((heap_bytes(&record), used.0.get()), (bytes, bytes), "at {now}");
        }
        carried.store(&mut record, 5, &used);
        let stored = Carried::of(&record);
        assert_eq!((stored.weight(5), stored.until(), stored.generation(0)), (1, 30, 5));
        let none = Carried::of(&None);
        assert_eq!((none.weight(5), none.until(), none.generation(0)), (0, 0, 0));
    }
}
