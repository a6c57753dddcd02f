//! The units spent by each key with their times, and their refunds and settlements.

use super::{
    history::Part,
    run::{Admitted, Held, Player},
};
use crate::{
    after_the_keeper, now,
    oracle::{Entry, Paid},
};

impl Player<'_> {
    pub fn refund(&mut self, which: usize) {
        let Some((held, lines)) = self.take_held(which) else { return };
        let mut expected = 0;
        // The store is not asked to refund nothing.
        for (paid, index) in lines.iter().filter(|(paid, _)| paid.units > 0) {
            let quota = self.quota(paid.ask.entry.0);
            let given = self.oracle.refund(self.time, &quota, paid);
            self.tally.count_if(given == 0, "refund of nothing");
            self.tally.count_if(given == paid.units, "refund in full");
            self.tally.count_if(given > 0 && given < paid.units, "refund in part");
            self.admitted[*index].units -= given;
            self.write(paid.ask.entry, given);
            expected += given;
        }
        assert_eq!(now(held.refund()).expect("the store answers"), expected, "units refunded");
    }

    pub fn settle(&mut self, which: usize, factor: Part) {
        let Some((held, lines)) = self.take_held(which) else { return };
        let units = factor.of(lines.iter().map(|(paid, _)| paid.units).max().unwrap_or(0).max(2));
        // Units come back before any are charged.
        for up in [false, true] {
            let charged = lines.iter().filter(|(paid, _)| paid.is_charged());
            // A settlement ends the work of units in flight, so it releases them all.
            let settled = |paid: &Paid| if paid.ask.quota.is_concurrent() { 0 } else { units };
            for (paid, index) in charged.filter(|(paid, _)| (paid.units < settled(paid)) == up) {
                let (entry, units) = (paid.ask.entry, settled(paid));
                self.tally.count_if(paid.ask.quota.is_concurrent(), "unit in flight released");
                let quota = self.quota(entry.0);
                let free = self.oracle.free(self.time, entry, &quota);
                let given = self.oracle.settle(self.time, &quota, paid, units);
                self.admitted[*index].units -= given;
                if up {
                    self.charged(entry, units);
                } else {
                    self.write(entry, given);
                }
                self.tally.count(if up { "settle upward" } else { "settle downward" });
                let beyond = up && units - paid.units > free;
                self.tally.count_if(beyond, "settle upward beyond the limit");
            }
        }
        now(held.settle(units)).expect("the store answers");
    }

    /// Drops reservations, which releases their units in flight. The key of `reset` has none left.
    pub fn release(&mut self, held: Vec<Held>, reset: Entry) {
        for (paid, index) in held.iter().flat_map(|(_, lines)| lines) {
            let is_in_flight = paid.units > 0 && paid.ask.quota.is_concurrent();
            if is_in_flight && paid.ask.entry != reset {
                // If the clock was set back, a check notices it, and a release does not.
                drop(self.peek(std::slice::from_ref(&paid.ask)));
                let quota = self.quota(paid.ask.entry.0);
                let given = self.oracle.refund(self.time, &quota, paid);
                self.admitted[*index].units -= given;
                self.write(paid.ask.entry, given);
            }
        }
        drop(held);
        // A history has no runtime, in which a task would send the releases to a remote store.
        // The thread of the limiter may be sending some of them.
        after_the_keeper(self.fixture.limiter.close()).expect("the store answers");
    }

    fn take_held(&mut self, which: usize) -> Option<Held> {
        let which = which.checked_rem(self.held.len())?;
        Some(self.held.swap_remove(which))
    }

    pub fn admit(&mut self, paid: Vec<Paid>) -> Vec<(Paid, usize)> {
        let mut lines = Vec::new();
        for paid in paid {
            let (entry, units) = (paid.ask.entry, paid.units);
            let time = self.charged(entry, units);
            lines.push((paid, self.admitted.len()));
            self.admitted.push(Admitted { entry, time, units });
        }
        lines
    }

    /// A charge; the time at which the key was judged.
    pub fn charged(&mut self, entry: Entry, units: u64) -> u64 {
        let changed = self.changed.entry(entry).or_default();
        if units > 0 {
            *changed = self.time.max(*changed);
        }
        let judged = *changed;
        self.write(entry, units);
        judged
    }

    fn write(&mut self, entry: Entry, units: u64) {
        if units > 0 {
            let before = self.written.get(&entry).map_or(0, |(time, _)| *time);
            self.written.insert(entry, (self.time.max(before), self.quota(entry.0)));
        }
    }
}
