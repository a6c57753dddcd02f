//! The token bucket: a debt of units, as a rational, that is paid off at the rate of the quota.

use num_rational::BigRational;
use plimsoll::Quota;

use super::{Model, Paid, Trace, micros, rational, whole};

/// Twice the longest window, in microseconds: no debt takes longer to be paid off.
const LONGEST: u64 = 2 * 400 * 86_400 * 1_000_000;

#[derive(Debug, Clone)]
pub(super) struct Bucket {
    debt: BigRational,
    /// The time of the last charge, which left this debt.
    changed: u64,
    rate: Option<Rate>,
}

/// Units per window. Equal rates of different windows are kept apart: what of a unit has been paid
/// is known to one part in a window only.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Rate {
    limit: u64,
    window: u64,
}

impl Rate {
    fn of(quota: &Quota) -> Self {
        Self { limit: quota.limit(), window: micros(quota) }
    }

    fn exact(self) -> BigRational {
        rational(self.limit) / rational(self.window)
    }

    /// The faster one; this one if they are equal.
    fn or_faster(self, other: Self) -> Self {
        if other.exact() > self.exact() { other } else { self }
    }

    /// A debt of which the paid part of a unit is rounded down to this window's parts.
    fn rounded(self, debt: &BigRational) -> BigRational {
        let paid = (debt.ceil() - debt) * rational(self.window);
        debt.ceil() - paid.floor() / rational(self.window)
    }
}

impl Default for Bucket {
    fn default() -> Self {
        Self { debt: rational(0), changed: 0, rate: None }
    }
}

impl Bucket {
    /// The rate since the last charge, and the debt that it left, in parts of that rate.
    fn since(&self, quota: &Quota) -> (Rate, BigRational) {
        let new = Rate::of(quota);
        let rate = self.rate.map_or(new, |old| new.or_faster(old));
        let same = self.rate == Some(rate) || self.rate.is_none_or(|it| it.window == rate.window);
        (rate, if same { self.debt.clone() } else { rate.rounded(&self.debt) })
    }

    fn debt(&self, quota: &Quota, now: u64) -> BigRational {
        let (rate, debt) = self.since(quota);
        let paid = rational(now.max(self.changed) - self.changed) * rate.exact();
        (debt - paid).max(rational(0))
    }
}

impl Model for Bucket {
    fn free(&self, quota: &Quota, now: u64) -> u64 {
        let free = rational(quota.capacity()) - self.debt(quota, now);
        whole(&free.floor().max(rational(0)))
    }

    fn moments(&self, quota: &Quota, units: u64) -> Vec<u64> {
        let (rate, debt) = self.since(quota);
        let over = debt - (rational(quota.capacity()) - rational(units));
        let enough = (over / rate.exact()).ceil().max(rational(0));
        vec![self.changed + whole(&enough)]
    }

    fn spend(&mut self, quota: &Quota, now: u64, units: u64) -> Trace {
        let rate = Rate::of(quota);
        let most = rational(quota.capacity()) + rational(quota.limit());
        let mut debt = rate.rounded(&self.debt(quota, now));
        if debt.ceil() <= most {
            debt = clamp(debt + rational(units), &most);
        } else {
            debt = clamp(debt, &(rational(LONGEST) * rate.exact()).floor());
        }
        self.changed = now.max(self.changed);
        self.rate = Some(rate);
        self.debt = debt.clone();
        Trace { time: self.changed, debt, changed: 0 }
    }

    fn healed(&self, now: u64) -> Option<Box<dyn Model>> {
        let window = self.rate?.window;
        let healed = Self { changed: now, ..self.clone() };
        (self.changed > now + window).then(|| Box::new(healed) as _)
    }

    fn refund(&mut self, quota: &Quota, now: u64, paid: &Paid) -> u64 {
        let now = now.max(self.changed);
        if paid.trace.time > now + micros(&paid.ask.quota) {
            return 0;
        }
        // A debt from before the request is paid before it, at the fastest rate there was.
        let rate = Rate::of(&paid.ask.quota);
        let rate = self.rate.map_or(rate, |old| rate.or_faster(old)).or_faster(Rate::of(quota));
        let debt = &paid.trace.debt;
        let part = ((debt.ceil() - debt) * rational(rate.window)).ceil() / rational(rate.window);
        let since = rational(now.saturating_sub(paid.trace.time)) * rate.exact();
        let left = (debt.ceil() - part - since).max(rational(0)).floor();
        let given = left.min(self.debt(quota, now).floor()).min(rational(paid.units));
        self.debt -= &given;
        whole(&given)
    }
}

/// Whole units beyond are forgotten; what of the next unit has been paid is kept.
fn clamp(debt: BigRational, most: &BigRational) -> BigRational {
    let beyond = (debt.ceil() - most).max(rational(0));
    debt - beyond
}
