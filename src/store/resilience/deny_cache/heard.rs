//! What a store has said of one key under one quota, and what follows from that as time goes by.
//!
//! While nobody spends or gives back, each wait ends at a fixed time. So one answer tells the next
//! ones exactly, until the next unit comes back, and for a token bucket whose units come back at
//! whole microseconds also after that. What does not follow exactly is not told.

use crate::{
    decision::{ChargeReply, Mark, Standing, Verdict},
    quota::{Algorithm, Quota},
};

/// How long an answer is believed, in microseconds: what others have done shows by then.
const LONGEST: u64 = 1_000_000;

/// For how many costs the wait is kept, beside those that follow from the standing.
const COSTS: usize = 4;

/// All times are this process's, in microseconds. Waits are counted from when the store was asked:
/// its own time was later, so that none is counted too long.
#[derive(Debug, Clone, Copy)]
pub(super) struct Heard {
    asked: u64,
    /// What the store's own clock showed then.
    store_time: u64,
    remaining: u64,
    next_at: u64,
    reset_at: u64,
    waits: [Wait; COSTS],
}

/// When units for this cost are free: for no cost, never.
#[derive(Debug, Clone, Copy, Default)]
struct Wait {
    cost: u64,
    at: u64,
    asked: u64,
}

/// Whether what was asked then is believed at `now`.
fn holds(asked: u64, now: u64) -> bool {
    (asked..asked.saturating_add(LONGEST)).contains(&now)
}

impl Heard {
    /// What an answer to a charge of `cost` tells. `None` if it makes no sense.
    pub(super) fn new(
        quota: &Quota,
        cost: u64,
        standing: &Standing,
        asked: u64,
        store_time: u64,
    ) -> Option<Self> {
        let Standing { limit, remaining, next_after, reset_after, retry_after } = *standing;
        let full = remaining == limit;
        let ordered = 0 < next_after && next_after <= reset_after && remaining < limit;
        if limit != quota.capacity() || !(full || ordered) {
            return None;
        }
        let at = |wait: u64| asked.saturating_add(wait);
        let mut waits = [Wait::default(); COSTS];
        if let Some(wait) = retry_after {
            waits[0] = Wait { cost, at: at(wait), asked };
        }
        let (next_at, reset_at) = (at(next_after), at(reset_after));
        Some(Self { asked, store_time, remaining, next_at, reset_at, waits })
    }

    /// Whether this is believed at `now`.
    pub(super) fn holds(&self, now: u64) -> bool {
        holds(self.asked, now)
    }

    /// Whether this was asked before the other, and is given up before it, if one has to be.
    pub(super) fn is_older(&self, other: &Self) -> bool {
        self.asked < other.asked
    }

    /// Keeps what was heard before of other costs and still holds.
    pub(super) fn keep(&mut self, before: &Self) {
        let (own, now) = (self.waits[0], self.asked);
        let kept = before
            .waits
            .iter()
            .filter(|it| it.cost != own.cost && it.at > now && holds(it.asked, now));
        let first = usize::from(own.cost > 0);
        for (place, kept) in self.waits[first..].iter_mut().zip(kept) {
            *place = *kept;
        }
    }

    /// The store's time at `now`.
    pub(super) fn store_time(&self, now: u64) -> u64 {
        self.store_time.saturating_add(now - self.asked)
    }

    /// What the store would say at `now` of a charge that spends nothing; `None` if that does not
    /// follow.
    #[inline]
    pub(super) fn line(&self, quota: &Quota, cost: u64, now: u64) -> Option<ChargeReply> {
        let limit = quota.capacity();
        let (remaining, next_at) = self.level(quota, limit, now)?;
        if remaining >= limit {
            return Some(unspent(cost, Standing::full(limit)));
        }
        let retry_after = match cost > remaining && cost <= limit {
            true => {
                let at = self.at(quota, cost, now, (remaining, next_at))?;
                Some(at.min(self.reset_at).max(next_at) - now)
            }
            false => None,
        };
        let (next_after, reset_after) = (next_at - now, self.reset_at - now);
        let standing = Standing { limit, remaining, next_after, reset_after, retry_after };
        Some(unspent(cost, standing))
    }

    /// What remains, and when that next grows.
    #[inline]
    fn level(&self, quota: &Quota, limit: u64, now: u64) -> Option<(u64, u64)> {
        if self.remaining >= limit || now >= self.reset_at {
            return Some((limit, now));
        }
        if now < self.next_at {
            return Some((self.remaining, self.next_at));
        }
        let step = step(quota)?;
        let more = (now - self.next_at) / step + 1;
        let next_at = self.next_at.saturating_add(more.saturating_mul(step));
        Some((self.remaining + more, next_at.min(self.reset_at)))
    }

    /// When so many units are free.
    #[inline]
    fn at(
        &self,
        quota: &Quota,
        cost: u64,
        now: u64,
        (remaining, next_at): (u64, u64),
    ) -> Option<u64> {
        // More units are never free earlier than fewer.
        let (mut low, mut high) = ((remaining + 1, next_at), (quota.capacity(), self.reset_at));
        for Wait { cost: known, at, asked } in self.waits {
            if !holds(asked, now) {
                continue;
            }
            if known == cost {
                return Some(at);
            }
            if (low.0..cost).contains(&known) {
                low = (known, at);
            } else if (cost..high.0).contains(&known) {
                high = (known, at);
            }
        }
        if cost == low.0 || low.1 == high.1 {
            return Some(low.1);
        }
        if cost == high.0 {
            return Some(high.1);
        }
        let more = (cost - remaining - 1).saturating_mul(step(quota)?);
        Some(next_at.saturating_add(more))
    }
}

/// How long a unit takes, if each takes the same whole number of microseconds.
fn step(quota: &Quota) -> Option<u64> {
    let Algorithm::TokenBucket { .. } = quota.algorithm() else { return None };
    let (window, limit) = (quota.window_micros(), quota.limit());
    window.is_multiple_of(limit).then(|| window / limit)
}

/// The line of a charge of which nothing was heard: as if its key had spent nothing.
pub(super) fn unheard(quota: &Quota, cost: u64) -> ChargeReply {
    unspent(cost, Standing::full(quota.capacity()))
}

fn unspent(cost: u64, standing: Standing) -> ChargeReply {
    let verdict = if cost <= standing.remaining {
        Verdict::Passed
    } else if cost > standing.limit {
        Verdict::OverCapacity
    } else {
        Verdict::Refused
    };
    ChargeReply { verdict, units: 0, standing, mark: Mark::default() }
}
