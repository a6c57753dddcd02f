//! The sliding counter: the requests of this period and of the one before, which weighs as much
//! as of it still overlaps with the window.

use tollgate::Quota;

use super::{Model, Paid, Trace, micros, rational};

#[derive(Debug, Default)]
pub(super) struct Counter {
    periods: Option<Periods>,
}

#[derive(Debug, Clone, Copy)]
struct Periods {
    before: u64,
    before_start: Option<u64>,
    spent: u64,
    start: u64,
    end: u64,
    /// The window when this period began.
    window: u64,
}

impl Counter {
    fn periods(&self, quota: &Quota, now: u64) -> Periods {
        let window = micros(quota);
        if let Some(mut old) = self.periods {
            old.end = old.end.min(old.start + window);
            let next = old.end + old.window.min(window);
            if now < old.end {
                return old;
            } else if now < next {
                let (before, before_start) = (old.spent, Some(old.start));
                return Periods {
                    before,
                    before_start,
                    spent: 0,
                    start: old.end,
                    end: next,
                    window,
                };
            }
        }
        let start = now / window * window;
        Periods { before: 0, before_start: None, spent: 0, start, end: start + window, window }
    }
}

impl Periods {
    fn weight(&self, now: u64) -> u64 {
        let now = now.max(self.start);
        let overlap = u128::from(self.end - now);
        let length = u128::from(self.end - self.start);
        let before = (u128::from(self.before) * overlap).div_ceil(length);
        u64::try_from(before).expect("no more than there was") + self.spent
    }
}

impl Model for Counter {
    fn free(&self, quota: &Quota, now: u64) -> u64 {
        quota.limit().saturating_sub(self.periods(quota, now).weight(now))
    }

    fn moments(&self, quota: &Quota, _: u64) -> Vec<u64> {
        let Some(old) = self.periods else { return Vec::new() };
        let end = old.end.min(old.start + micros(quota));
        vec![end, end + old.window.min(micros(quota))]
    }

    fn spend(&mut self, quota: &Quota, now: u64, units: u64) -> Trace {
        let periods = self.periods(quota, now);
        let spent = periods.spent.saturating_add(units).min(1 << 52);
        self.periods = Some(Periods { spent, ..periods });
        Trace { time: periods.start, debt: rational(0) }
    }

    fn refund(&mut self, quota: &Quota, now: u64, paid: &Paid) -> u64 {
        let mut periods = self.periods(quota, now);
        let time = paid.trace.time;
        let mut nothing = 0;
        let spent = if time == periods.start {
            &mut periods.spent
        } else if Some(time) == periods.before_start {
            &mut periods.before
        } else {
            &mut nothing
        };
        let given = paid.units.min(*spent);
        *spent -= given;
        if given > 0 {
            self.periods = Some(periods);
        }
        given
    }
}
