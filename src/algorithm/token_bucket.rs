//! Token bucket: refills steadily, up to a burst.
//!
//! Admits at most `burst + limit` units in any window. What a key has spent is kept as units of
//! debt (not as time, as GCRA does), so that a change of the quota keeps it. The fraction of a unit
//! that has refilled is kept exactly, as a count of `1 / window` units.
//!
//! # Changing a quota
//!
//! - A new *burst* applies at once and moves no debt: `burst - debt` units are free.
//! - After a change of the *rate* (limit or window) the time since the key's last charge counts at
//!   the faster of the old and the new rate, so nothing that has refilled is taken back, and a
//!   raise acts at once. From the next charge on the new rate alone counts.
//! - The bound holds from the change on: the first charge after it finds at most `burst` units
//!   free, and from that charge on the new rate refills, at most `limit` units in a window.

use super::{
    MemoryBudget, Refund, Snapshot, StateMachine, Stored,
    bytes::{MAX_NUMBER, MAX_WINDOW, Numbers, write_numbers},
    math::{mul_add_div_rem, mul_div, mul_div_ceil},
};
use crate::{clock::Timestamp, decision::Mark, quota::Quota};

/// The longest time that a debt takes to be paid off, in microseconds: twice the longest window,
/// which a burst and a window's refill together never exceed.
const MAX_PAYOFF_MICROS: u64 = 2 * Quota::MAX_WINDOW.as_micros() as u64;

/// The debt at `anchor` is `debt - credit / window` units.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct TokenBucket {
    debt: u64,
    credit: u64,
    /// The time of the last charge.
    anchor: u64,
    /// Limit and window of the last charge: the rate at which the debt is paid off.
    limit: u64,
    window: u64,
}

/// A token bucket as it stands at one time under one quota.
#[derive(Clone, Copy)]
pub(crate) struct Bucket {
    limit: u64,
    window: u64,
    burst: u64,
    debt: u64,
    /// In `1 / rate_window` units.
    credit: u64,
    /// The rate until the next charge: the quota's, or a faster one of before a change.
    rate_limit: u64,
    rate_window: u64,
    /// The time at which the bucket is judged, and by how much it is ahead of a clock that ran
    /// backward.
    now: u64,
    ahead: u64,
}

impl Snapshot for Bucket {
    fn free(&self) -> u64 {
        self.burst.saturating_sub(self.debt)
    }
}

impl Stored for TokenBucket {
    fn heal(&mut self, now: Timestamp) {
        if self.anchor > now.as_micros() + self.window {
            self.anchor = now.as_micros();
        }
    }

    /// Debts are paid in the order in which they were made, so what is left of this one is what
    /// the refill since has not reached.
    fn refund(&mut self, quota: &Quota, now: Timestamp, refund: &Refund) -> u64 {
        let Mark([time, debt, credit]) = refund.mark;
        let bucket = self.snapshot(quota, now);
        if time > bucket.now + refund.quota.window_micros() {
            // The clock has been set back since: how much of this debt is left is not known.
            return 0;
        }
        let elapsed = bucket.now.saturating_sub(time);
        // The rate may have changed since: the fastest one that is known is assumed for all of the
        // time, so that no unit comes back that has been paid off.
        let charged = (refund.quota.limit(), refund.quota.window_micros());
        let known = [(self.limit, self.window), (bucket.limit, bucket.window)];
        let (limit, window) = known
            .into_iter()
            .fold(charged, |rate, other| if is_faster(other, rate) { other } else { rate });
        let credit = mul_div_ceil(credit, window, charged.1);
        let (paid, rest) = mul_add_div_rem(elapsed, limit, credit, window);
        let left = debt.saturating_sub(paid.saturating_add(u64::from(rest > 0)));
        let outstanding = bucket.debt.saturating_sub(u64::from(bucket.credit > 0));
        let units = refund.units.min(left).min(outstanding);
        self.debt -= units;
        units
    }

    fn expires_at(&self) -> Timestamp {
        let rest = match self.debt {
            0 => 0,
            debt => payoff(debt, self.credit, self.limit, self.window),
        };
        Timestamp::from_micros(self.anchor.saturating_add(rest))
    }

    fn outstanding(&self, now: Timestamp) -> u64 {
        if self.debt == 0 {
            return 0;
        }
        let elapsed = now.as_micros().saturating_sub(self.anchor);
        self.debt.saturating_sub(mul_div(elapsed, self.limit, self.window))
    }

    fn write(&self, bytes: &mut Vec<u8>) {
        let Self { debt, credit, anchor, limit, window } = *self;
        write_numbers(bytes, [debt, credit, anchor, limit, window]);
    }
}

impl StateMachine for TokenBucket {
    type Snapshot = Bucket;

    fn snapshot(&self, quota: &Quota, now: Timestamp) -> Bucket {
        let limit = quota.limit();
        let window = quota.window_micros();
        let burst = quota.capacity();
        let ahead = self.anchor.saturating_sub(now.as_micros());
        let now = now.as_micros() + ahead;
        let (rate_limit, rate_window, credit) = self.rate_under(limit, window);
        let (paid, credit) = mul_add_div_rem(now - self.anchor, rate_limit, credit, rate_window);
        let (debt, credit) = if paid < self.debt { (self.debt - paid, credit) } else { (0, 0) };
        Bucket { limit, window, burst, debt, credit, rate_limit, rate_window, now, ahead }
    }

    fn wait(&self, bucket: &Bucket, units: u64) -> u64 {
        let debt = bucket.burst - units;
        if bucket.debt <= debt {
            return 0;
        }
        let Bucket { credit, rate_limit, rate_window, .. } = *bucket;
        let rest = payoff(bucket.debt - debt, credit, rate_limit, rate_window);
        bucket.ahead.saturating_add(rest)
    }

    fn charge(&mut self, bucket: &mut Bucket, units: u64, _: &dyn MemoryBudget) -> Mark {
        let Bucket { limit, window, burst, .. } = *bucket;
        if bucket.rate_window != window {
            bucket.credit = mul_div(bucket.credit, window, bucket.rate_window);
        }
        (bucket.rate_limit, bucket.rate_window) = (limit, window);
        bucket.debt = if bucket.debt <= burst + limit {
            bucket.debt.saturating_add(units).min(burst + limit)
        } else {
            // An earlier quota allowed a larger debt. It stays, while a timestamp can hold its end.
            bucket.debt.min(mul_div(MAX_PAYOFF_MICROS, limit, window))
        };
        let Bucket { debt, credit, now: anchor, .. } = *bucket;
        *self = Self { debt, credit, anchor, limit, window };
        Mark([anchor, debt, credit])
    }

    fn returned_at(_: &Quota, _: u64) -> Option<u64> {
        None
    }

    fn read(numbers: &mut Numbers<'_>) -> Option<Self> {
        let debt = numbers.next(MAX_NUMBER)?;
        let credit = numbers.next(MAX_WINDOW)?;
        let anchor = numbers.next(MAX_NUMBER)?;
        let limit = numbers.next(Quota::MAX_LIMIT)?;
        let window = numbers.next(MAX_WINDOW)?;
        // A new bucket has no rate, and no debt to pay off with it.
        let is_paid_off = limit > 0 && window > 0 || debt == 0 && limit == window;
        (is_paid_off && credit <= window).then_some(Self { debt, credit, anchor, limit, window })
    }
}

impl TokenBucket {
    /// Returns the rate (limit and window) that counts since the last charge, and the credit in its units: after a
    /// change of the quota, the faster one of the two.
    fn rate_under(&self, limit: u64, window: u64) -> (u64, u64, u64) {
        if self.limit == limit && self.window == window
            || is_faster((self.limit, self.window), (limit, window))
        {
            return (self.limit, self.window, self.credit);
        }
        let credit = match self.window {
            0 => 0,
            old => mul_div(self.credit, window, old),
        };
        (limit, window, credit)
    }
}

/// Returns whether one rate (limit and window) exceeds another.
fn is_faster(rate: (u64, u64), other: (u64, u64)) -> bool {
    u128::from(rate.0) * u128::from(other.1) > u128::from(other.0) * u128::from(rate.1)
}

/// Returns the microseconds of refill that pay off `units` of debt, of which `credit / window` are
/// paid: `ceil((units * window - credit) / limit)`. `units` is at least 1.
fn payoff(units: u64, credit: u64, limit: u64, window: u64) -> u64 {
    // In an order that needs no negative number.
    let (quotient, remainder) = mul_add_div_rem(units - 1, window, window - credit, limit);
    quotient.saturating_add(u64::from(remainder > 0))
}
