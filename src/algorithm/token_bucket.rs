//! Token bucket: refills steadily, up to a burst.
//!
//! Promises at most `burst + limit` units in any window. What a key owes is kept as units of debt
//! (not as time, as GCRA does), so that a change of the limit keeps what was spent; the part of a
//! unit that has been paid off is kept exactly, as a count of `1 / window` units.

use super::{
    Machine, Refund, Room, View,
    math::{mul_add_div_rem, mul_div_ceil},
};
use crate::{clock::Timestamp, decision::Mark, quota::Quota};

/// The debt at `anchor` is `debt - credit / window` units.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct TokenBucket {
    debt: u64,
    credit: u64,
    /// The time of the last change.
    anchor: u64,
    /// When the debt is paid off by the quota of the last change, at the latest.
    paid_at: u64,
    window: u64,
}

#[derive(Clone, Copy)]
pub(crate) struct Bucket {
    limit: u64,
    window: u64,
    burst: u64,
    debt: u64,
    credit: u64,
    /// In how long the debt is paid off by the quota of the last change.
    paid_in: u64,
    /// Whether that was this quota.
    own: bool,
    /// The time at which the bucket is judged, and by how much it is ahead of a clock that ran
    /// backward.
    now: u64,
    ahead: u64,
}

impl Bucket {
    /// Microseconds of refill until the debt is no more than `debt`, which it exceeds.
    #[inline]
    fn wait_for_debt(&self, debt: u64) -> u64 {
        let (units, rest) = (self.debt - debt, self.credit);
        // ceil((units * window - rest) / limit), without leaving unsigned numbers
        let (quotient, remainder) =
            mul_add_div_rem(units - 1, self.window, self.window - rest, self.limit);
        quotient + u64::from(remainder > 0)
    }
}

impl View for Bucket {
    fn free(&self) -> u64 {
        self.burst.saturating_sub(self.debt)
    }
}

impl Machine for TokenBucket {
    type View = Bucket;

    #[inline(always)]
    fn view(&self, quota: &Quota, now: Timestamp) -> Bucket {
        let (limit, window, burst) = (quota.limit(), quota.window_micros(), quota.capacity());
        let ahead = self.anchor.saturating_sub(now.as_micros());
        let now = now.as_micros() + ahead;
        let (debt, credit, paid_in, own) = (0, 0, 0, false);
        let mut bucket = Bucket { limit, window, burst, debt, credit, paid_in, own, now, ahead };
        // Under any quota: a debt never outlives the rule under which it was made.
        if now >= self.paid_at {
            return bucket;
        }
        let credit = if self.window == window {
            self.credit
        } else {
            mul_add_div_rem(self.credit, window, 0, self.window).0
        };
        let (paid, credit) = mul_add_div_rem(now - self.anchor, limit, credit, window);
        // A lower limit acts at once, but nobody waits longer than from empty. What is beyond goes
        // before the refill counts: else it would go anew at each look, and no wait would end.
        let debt = self.debt.min(burst + limit);
        if paid < debt {
            bucket.debt = debt - paid;
            bucket.credit = credit;
            bucket.paid_in = self.paid_at - now;
        }
        bucket
    }

    #[inline]
    fn wait(&self, bucket: &Bucket, units: u64) -> u64 {
        let debt = bucket.burst - units;
        if bucket.debt <= debt {
            return 0;
        }
        // Of a debt made under this quota `paid_in` says when all of it is paid.
        if debt == 0 && bucket.own {
            return bucket.ahead + bucket.paid_in;
        }
        bucket.ahead + bucket.wait_for_debt(debt).min(bucket.paid_in)
    }

    #[inline]
    fn spend(&mut self, bucket: &mut Bucket, units: u64, _: &dyn Room) -> Mark {
        bucket.debt = bucket.debt.saturating_add(units).min(bucket.burst + bucket.limit);
        self.put(bucket);
        Mark(self.anchor, bucket.debt, bucket.credit)
    }

    /// Debts are paid in the order in which they were made, so what is left of this one is what
    /// the refill since has not reached.
    fn refund(&mut self, quota: &Quota, now: Timestamp, spent: &Refund) -> u64 {
        let Mark(time, debt, credit) = spent.mark;
        let elapsed = now.as_micros().max(self.anchor).saturating_sub(time);
        let window = spent.quota.window_micros();
        let (paid, rest) = mul_add_div_rem(elapsed, spent.quota.limit(), credit, window);
        let left = debt.saturating_sub(paid.saturating_add(u64::from(rest > 0)));
        let mut bucket = self.view(quota, now);
        let owed = bucket.debt.saturating_sub(u64::from(bucket.credit > 0));
        let units = spent.units.min(left).min(owed);
        if units > 0 {
            bucket.debt -= units;
            self.put(&mut bucket);
        }
        units
    }

    fn expires_at(&self) -> Timestamp {
        Timestamp::from_micros(self.paid_at)
    }

    fn owed(&self, now: Timestamp) -> u64 {
        let left = self.paid_at.saturating_sub(now.as_micros());
        let all = self.paid_at - self.anchor;
        if all == 0 { 0 } else { mul_div_ceil(self.debt, left.min(all), all) }
    }
}

impl TokenBucket {
    #[inline]
    fn put(&mut self, bucket: &mut Bucket) {
        bucket.paid_in = if bucket.debt > 0 { bucket.wait_for_debt(0) } else { 0 };
        bucket.own = true;
        self.anchor = bucket.now;
        self.debt = bucket.debt;
        self.credit = bucket.credit;
        self.window = bucket.window;
        self.paid_at = bucket.now + bucket.paid_in;
    }
}
