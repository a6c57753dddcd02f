//! The fixed window: the requests of one period, which begins and ends at multiples of the window.

use tollgate::Quota;

use super::{Model, Paid, Trace, micros, rational};

#[derive(Debug, Default)]
pub(super) struct Fixed {
    period: Option<Period>,
}

#[derive(Debug, Clone, Copy)]
struct Period {
    start: u64,
    end: u64,
    spent: u64,
}

impl Fixed {
    fn period(&self, quota: &Quota, now: u64) -> Period {
        let window = micros(quota);
        if let Some(mut period) = self.period {
            period.end = period.end.min((period.start / window + 1) * window);
            if now < period.end {
                return period;
            }
        }
        let start = now / window * window;
        Period { start, end: start + window, spent: 0 }
    }
}

impl Model for Fixed {
    fn free(&self, quota: &Quota, now: u64) -> u64 {
        quota.limit().saturating_sub(self.period(quota, now).spent)
    }

    fn moments(&self, quota: &Quota, _: u64) -> Vec<u64> {
        self.period.iter().map(|period| self.period(quota, period.start).end).collect()
    }

    fn spend(&mut self, quota: &Quota, now: u64, units: u64) -> Trace {
        let period = self.period(quota, now);
        let spent = period.spent.saturating_add(units).min(1 << 52);
        self.period = Some(Period { spent, ..period });
        Trace { time: period.start, debt: rational(0) }
    }

    fn refund(&mut self, quota: &Quota, now: u64, paid: &Paid) -> u64 {
        let period = self.period(quota, now);
        if period.start != paid.trace.time {
            return 0;
        }
        let given = paid.units.min(period.spent);
        if given > 0 {
            self.period = Some(Period { spent: period.spent - given, ..period });
        }
        given
    }
}
