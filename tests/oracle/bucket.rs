//! The token bucket: a debt of units, as a rational, that is paid off at the quota's rate.

use num_rational::BigRational;
use tollgate::Quota;

use super::{Model, Paid, Trace, micros, rational, whole};

#[derive(Debug)]
pub(super) struct Bucket {
    debt: BigRational,
    /// When the debt was as above, and the window then.
    changed: u64,
    window: u64,
    /// From when on nothing is owed whatever the quota.
    paid_at: u64,
}

impl Default for Bucket {
    fn default() -> Self {
        Self { debt: rational(0), changed: 0, window: 0, paid_at: 0 }
    }
}

impl Bucket {
    fn debt(&self, quota: &Quota, now: u64) -> BigRational {
        let now = now.max(self.changed);
        if now >= self.paid_at {
            return rational(0);
        }
        let paid = rational(now - self.changed) * rate(quota);
        (self.debt_under(quota) - paid).max(rational(0))
    }

    /// The debt at the last change, as another quota sees it. What of a unit has been paid already
    /// is known to one part in a window only.
    fn debt_under(&self, quota: &Quota) -> BigRational {
        let parts = rational(micros(quota));
        let whole = self.debt.ceil();
        let mut paid = &whole - &self.debt;
        if micros(quota) != self.window {
            paid = (paid * &parts).floor() / parts;
        }
        clamp(whole - paid, quota)
    }

    fn change(&mut self, quota: &Quota, now: u64, debt: BigRational) {
        self.changed = now.max(self.changed);
        self.window = micros(quota);
        self.paid_at = self.changed + whole(&(&debt / rate(quota)).ceil());
        self.debt = debt;
    }
}

impl Model for Bucket {
    fn free(&self, quota: &Quota, now: u64) -> u64 {
        let free = rational(quota.capacity()) - self.debt(quota, now);
        whole(&free.floor().max(rational(0)))
    }

    fn moments(&self, quota: &Quota, units: u64) -> Vec<u64> {
        let over = self.debt_under(quota) - (rational(quota.capacity()) - rational(units));
        let enough = (over / rate(quota)).ceil().max(rational(0));
        vec![self.changed + whole(&enough), self.paid_at]
    }

    fn spend(&mut self, quota: &Quota, now: u64, units: u64) -> Trace {
        let debt = clamp(self.debt(quota, now) + rational(units), quota);
        self.change(quota, now, debt.clone());
        Trace { time: self.changed, debt }
    }

    fn refund(&mut self, quota: &Quota, now: u64, paid: &Paid) -> u64 {
        let now = now.max(self.changed);
        // What was owed before the request is paid before it.
        let since = rational(now.saturating_sub(paid.trace.time)) * rate(&paid.ask.quota);
        let left = (&paid.trace.debt - since).max(rational(0)).floor();
        let debt = self.debt(quota, now);
        let given = left.min(debt.floor()).min(rational(paid.units));
        let given = whole(&given);
        if given > 0 {
            self.change(quota, now, debt - rational(given));
        }
        given
    }
}

fn rate(quota: &Quota) -> BigRational {
    rational(quota.limit()) / rational(micros(quota))
}

/// Nobody owes more than the burst and a window's refill: units beyond that are forgotten, and
/// what of the next unit has been paid is kept.
fn clamp(debt: BigRational, quota: &Quota) -> BigRational {
    let most = rational(quota.capacity()) + rational(quota.limit());
    let beyond = (debt.ceil() - most).max(rational(0));
    debt - beyond
}
