//! Units that a key spent under an earlier window, for the two algorithms that count by periods.
//!
//! A counter does not know when its units were charged. So after a change of the window, all units of
//! a period are assumed to be charged at the last possible time. Each group of carried units has two
//! [`Ramp`]s: one of the window that counted them, and one of a later window. The smaller weight of
//! the two counts, so the units leave at the earlier of the old and the new rule.

use std::mem;

use super::{
    MemoryBudget,
    bytes::{MAX_NUMBER, Numbers, write_numbers},
    math::{MAX_COUNT, mul_div_ceil},
};

/// The maximum number of groups of a key. If there are more, the two oldest become one, which leaves
/// with the later of them.
///
/// A change of the window adds one group for a fixed window, and up to two for a sliding counter. A group
/// whose units no longer count is dropped. So there are more only after several changes in a short time.
const MAX_GROUPS: usize = 8;

/// A weight over time: all until `hold`, none from `zero` on, and evenly less in between.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Ramp {
    pub(super) hold: u64,
    pub(super) zero: u64,
}

impl Ramp {
    /// Returns how many of `units` count at `now`, rounded up.
    pub(super) fn weight(self, units: u64, now: u64) -> u64 {
        if now >= self.zero {
            0
        } else if now <= self.hold {
            units
        } else {
            mul_div_ceil(units, self.zero - now, self.zero - self.hold)
        }
    }
}

/// Units that leave together.
#[derive(Debug, Clone, Copy)]
struct Group {
    units: u64,
    /// The rule of the window that counted the units.
    own: Ramp,
    /// The rule of a later window; of several, the one under which the last unit leaves first.
    later: Ramp,
}

impl Group {
    fn weight(&self, now: u64) -> u64 {
        self.own.weight(self.units, now).min(self.later.weight(self.units, now))
    }

    /// Returns the time from which the group weighs nothing.
    fn end(&self) -> u64 {
        self.own.zero.min(self.later.zero)
    }
}

/// The record of earlier windows that a key keeps beside its counters.
///
/// If the window changes and changes back within one period, two counters have the same window and the same
/// period. The *generation* tells them apart: it is part of the [mark](crate::decision::Mark) of a charge, so
/// that a refund is taken from the counter that has counted the charge.
#[derive(Debug, Clone, Default)]
pub(super) struct Carried {
    /// The generation of the counters: the time of the first charge under their window, or a little later. It
    /// rises with each change of the window, and is never 0.
    generation: u64,
    /// The time from which the record is not needed: no charge of an earlier generation counts, and the units
    /// of the period in which this generation lies weigh nothing.
    until: u64,
    /// Oldest first.
    groups: Vec<Group>,
}

impl Carried {
    /// Begins the counters of a new window at `now`. The units of the counters before weigh nothing from
    /// `old_zero` on. `zero(time)` is the time from which the units that are charged at `time` weigh nothing
    /// under the new window.
    ///
    /// After several changes in a microsecond, the generation is later than `now`, and may lie in the next
    /// period. The record is kept until the units of that period weigh nothing.
    pub(super) fn begin_counters(&mut self, now: u64, old_zero: u64, zero: impl Fn(u64) -> u64) {
        self.generation = now.max(self.generation + 1);
        self.until = self.until.max(old_zero).max(zero(self.generation));
    }

    /// Applies the rule of a new window to all groups. `bound` is the rule of a unit that is charged at
    /// the time of the key's last charge.
    pub(super) fn bound_by(&mut self, bound: Ramp) {
        for Group { units, own, later } in mem::take(&mut self.groups) {
            self.add(units, own, if bound.zero < later.zero { bound } else { later });
        }
    }

    /// Adds the units of a period.
    pub(super) fn add(&mut self, units: u64, own: Ramp, later: Ramp) {
        if units == 0 {
            return;
        }
        let same = self.groups.iter_mut().find(|group| group.own == own && group.later == later);
        if let Some(group) = same {
            group.units = (group.units + units).min(MAX_COUNT);
            return;
        }
        self.groups.push(Group { units, own, later });
        if self.groups.len() > MAX_GROUPS {
            let oldest = self.groups.remove(0);
            let next = &mut self.groups[0];
            let leaves_last = if oldest.end() > next.end() { oldest } else { *next };
            let units = (oldest.units + next.units).min(MAX_COUNT);
            *next = Group { units, ..leaves_last };
        }
    }

    /// Drops the groups whose units no longer count. Returns the rest, if it is still needed.
    pub(super) fn unexpired(mut self: Box<Self>, now: u64) -> Option<Box<Self>> {
        self.groups.retain(|group| now < group.end());
        if now < self.until { Some(self) } else { None }
    }

    /// Returns how many units count at `now`.
    pub(super) fn weight(&self, now: u64) -> u64 {
        self.groups.iter().map(|group| group.weight(now)).sum()
    }

    /// Returns the time from which no carried unit counts.
    pub(super) fn end(&self) -> u64 {
        self.groups.iter().map(Group::end).max().unwrap_or(0)
    }

    /// Returns whether units of a period with the rule `own` still count at `now`.
    pub(super) fn counts(&self, own: Ramp, now: u64) -> bool {
        self.groups.iter().any(|group| group.own == own && group.weight(now) > 0)
    }

    /// Returns the units of the first group of a period with the rule `own` that counts at `now`.
    pub(super) fn units_of(&mut self, own: Ramp, now: u64) -> Option<&mut u64> {
        let group = self.groups.iter_mut().find(|group| group.own == own && group.weight(now) > 0);
        group.map(|group| &mut group.units)
    }
}

/// Returns the time from which the record of a key is not needed.
#[inline]
pub(super) fn until(carried: &Option<Box<Carried>>) -> u64 {
    carried.as_ref().map_or(0, |carried| carried.until)
}

/// Returns the generation of the counter of the period from `start` on, or 0 if the window has not changed
/// since `start`.
#[inline]
pub(super) fn generation(carried: &Option<Box<Carried>>, start: u64) -> u64 {
    let generation = carried.as_ref().map_or(0, |carried| carried.generation);
    if generation >= start { generation } else { 0 }
}

/// Returns the bytes that the record of a key takes.
pub(super) fn heap_bytes(carried: &Option<Box<Carried>>) -> usize {
    let bytes = |carried: &Carried| size_of::<Carried>() + size_of_val(&*carried.groups);
    carried.as_ref().map_or(0, |carried| bytes(carried))
}

/// Appends the record of a key to the bytes of its state.
pub(super) fn write(carried: &Option<Box<Carried>>, bytes: &mut Vec<u8>) {
    let Some(carried) = carried else { return write_numbers(bytes, [0]) };
    let Carried { generation, until, groups } = &**carried;
    write_numbers(bytes, [1 + groups.len() as u64, *generation, *until]);
    for Group { units, own, later } in groups {
        write_numbers(bytes, [*units, own.hold, own.zero, later.hold, later.zero]);
    }
}

/// Reads the record of a key.
pub(super) fn read(numbers: &mut Numbers<'_>) -> Option<Option<Box<Carried>>> {
    let Some(groups) = numbers.next(1 + MAX_GROUPS as u64)?.checked_sub(1) else {
        return Some(None);
    };
    let (generation, until) = (numbers.next(MAX_NUMBER)?, numbers.next(MAX_NUMBER)?);
    let mut carried = Carried { generation, until, groups: Vec::new() };
    for _ in 0..groups {
        let mut next = || numbers.next(MAX_NUMBER);
        let (units, own) = (next()?, Ramp { hold: next()?, zero: next()? });
        let later = Ramp { hold: next()?, zero: next()? };
        carried.groups.push(Group { units, own, later });
    }
    Some(Some(Box::new(carried)))
}

/// Subtracts up to `units` from the first counter of a period that is not 0. Returns the number
/// subtracted.
pub(super) fn take(units: u64, counters: [Option<&mut u64>; 2]) -> u64 {
    let counter = counters.into_iter().flatten().find(|counter| **counter > 0);
    counter.map_or(0, |counter| {
        let taken = units.min(*counter);
        *counter -= taken;
        taken
    })
}

/// Removes all units that count at `now` from the groups, and returns their number. The empty record
/// stays until the next charge, because its memory is counted.
#[cold]
pub(super) fn take_all(carried: &mut Option<Box<Carried>>, now: u64) -> u64 {
    let Some(carried) = carried else { return 0 };
    let units = carried.weight(now);
    let gone = Ramp { hold: 0, zero: 0 };
    carried.groups.fill(Group { units: 0, own: gone, later: gone });
    (carried.generation, carried.until) = (0, 0);
    units
}

/// Stores in a state what of `with` is needed at `now`, as [`Carried::unexpired`] says.
#[inline]
pub(super) fn replace(
    stored: &mut Option<Box<Carried>>,
    with: &Option<Box<Carried>>,
    now: u64,
    budget: &dyn MemoryBudget,
) {
    if stored.is_none() && with.is_none() {
        return;
    }
    let before = heap_bytes(stored);
    *stored = with.clone().and_then(|carried| carried.unexpired(now));
    budget.resized(before, heap_bytes(stored));
}

#[cfg(test)]
mod tests {
    use super::*;

    fn step(end: u64) -> Ramp {
        Ramp { hold: end, zero: end }
    }

    /// Returns groups of 1, 2, 4, .. units that end at 100, 101, .., by their own rule or by the later one.
    fn groups(number: u64) -> Carried {
        let mut carried = Carried { until: 2_000, ..Carried::default() };
        for index in 0..number {
            let (end, never) = (step(100 + index), step(1_000));
            let (own, later) = if index % 2 == 0 { (end, never) } else { (never, end) };
            carried.add(1 << index, own, later);
        }
        carried
    }

    #[test]
    fn the_two_oldest_of_nine_groups_become_one_that_leaves_last() {
        let mut carried = groups(8);
        assert_eq!((carried.weight(99), carried.weight(100)), (255, 254));
        carried.add(0, step(500), step(500));
        assert_eq!(carried.weight(100), 254);

        let mut carried = groups(9);
        assert_eq!([99, 100, 101].map(|now| carried.weight(now)), [511, 511, 508]);
        // The one that leaves last is the older one here.
        carried.add(1 << 9, step(50), step(60));
        assert_eq!([49, 50, 101, 102].map(|now| carried.weight(now)), [1023, 511, 511, 504]);
        // If both end together, the younger one gives the time until which both count.
        let mut together = Carried::default();
        let from = |hold| Ramp { hold, zero: 200 };
        together.add(2, from(50), step(1_000));
        together.add(2, from(180), step(1_000));
        (0..7).for_each(|index| together.add(4, step(100 - index), step(300)));
        assert_eq!(together.weight(180), 4);
        let mut older = Carried::default();
        older.add(1, step(200), step(200));
        (0..8).for_each(|index| older.add(2 << index, step(100 + index), step(300)));
        assert_eq!([99, 100, 101, 199].map(|now| older.weight(now)), [511, 511, 507, 3]);
    }

    #[test]
    fn groups_end_one_by_one_and_the_last_one_is_the_end_of_all() {
        let carried = groups(3);
        assert_eq!((carried.end(), Carried::default().end()), (102, 0));
        let left = |now| Box::new(groups(3)).unexpired(now).map_or(0, |left| left.groups.len());
        assert_eq!([99, 100, 101, 102].map(left), [3, 2, 1, 0]);
    }

    #[test]
    fn a_generation_rises_with_each_change_and_stays_while_its_period_counts() {
        let mut carried = Carried::default();
        let generations = [0, 0, 7, 7, 5].map(|now| {
            carried.begin_counters(now, 10 * now, |time| 50 + time);
            (carried.generation, carried.until)
        });
        assert_eq!(generations, [(1, 51), (2, 52), (7, 70), (8, 70), (9, 70)]);
        let kept = |now| Box::new(carried.clone()).unexpired(now);
        assert_eq!([69, 70].map(|now| kept(now).is_some()), [true, false]);
        let of_period = |start| generation(&Some(Box::new(carried.clone())), start);
        assert_eq!(([0, 9, 10].map(of_period), generation(&None, 0)), ([9, 9, 0], 0));
    }

    #[test]
    fn of_several_later_rules_the_one_counts_under_which_the_last_unit_leaves_first() {
        let mut carried = Carried::default();
        carried.add(8, step(1_000), Ramp { hold: 100, zero: 200 });
        carried.bound_by(Ramp { hold: 50, zero: 250 });
        assert_eq!(carried.weight(100), 8);
        // If two end together, the first one stays.
        carried.bound_by(Ramp { hold: 0, zero: 200 });
        assert_eq!(carried.weight(100), 8);
        carried.bound_by(Ramp { hold: 0, zero: 160 });
        assert_eq!(carried.weight(100), 3);
    }

    #[test]
    fn a_refund_goes_to_the_first_group_of_its_period_that_counts() {
        let (own, mut carried) = (step(200), Carried::default());
        carried.add(1, own, step(100));
        carried.add(2, own, step(150));
        let units_of = |own, now| carried.clone().units_of(own, now).map(|units| *units);
        let found = [99, 100, 149, 150].map(|now| units_of(own, now));
        assert_eq!(found, [Some(1), Some(2), Some(2), None]);
        assert_eq!(units_of(step(150), 99), None);
    }

    #[test]
    fn memory_is_that_of_the_groups() {
        let boxed = |number| Some(Box::new(groups(number)));
        let bytes = [1, 2].map(|number| heap_bytes(&boxed(number)));
        assert_eq!((heap_bytes(&None), bytes[1] - bytes[0]), (0, size_of::<Group>()));
        assert_eq!(bytes[0], size_of::<Carried>() + size_of::<Group>());
    }

    #[test]
    fn units_are_taken_from_the_first_counter_that_has_some() {
        let (mut first, mut second) = (0, 5);
        assert_eq!(take(3, [Some(&mut first), Some(&mut second)]), 3);
        assert_eq!((first, second), (0, 2));
        first = 1;
        assert_eq!(take(3, [Some(&mut first), Some(&mut second)]), 1);
        assert_eq!((first, second, take(3, [None, None])), (0, 2, 0));
    }

    #[test]
    fn all_units_that_count_are_taken_at_once() {
        let mut carried = Some(Box::new(groups(3)));
        assert_eq!(take_all(&mut carried, 100), 6);
        assert_eq!((take_all(&mut carried, 100), take_all(&mut None, 0)), (0, 0));
        assert_eq!((until(&carried), generation(&carried, 0)), (0, 0));
    }
}
