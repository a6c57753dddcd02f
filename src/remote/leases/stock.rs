//! The stock of one key: the units that this process has leased. A state machine without a clock and
//! without I/O.
//!
//! All times are in microseconds of the holder's clock, unless they are a [`Timestamp`] of the store.
//!
//! The order of the calls is part of the bound:
//!
//! - The clock is read before a request is sent. This time is the `now` of [`Stock::send`], and the lease
//!   begins there, so it ends no later than the store allows.
//! - The clock is read after [`Stock::take`]. A unit is used at that time, so a task that was stopped
//!   before it cannot use a unit too late. Units that are [too late](Taken::is_usable) go to
//!   [`Stock::discard`].

use std::time::Duration;

use super::{
    demand::{Demand, Expected},
    grants::{Grant, Grants, Leftovers, Taken},
};
use crate::{
    clock::{Timestamp, micros_up},
    decision::{ChargeReply, Mark, Standing},
    quota::Quota,
};

/// The units of one key that this process has leased, and the demand for them.
#[cfg_attr(test, derive(Clone))]
#[derive(Debug)]
pub(crate) struct Stock {
    quota: Quota,
    /// The most units that the store can ever grant.
    capacity: u64,
    /// The time from one renewal to the next: half of the lease.
    refresh: u64,
    /// A renewal that was sent under an earlier generation is not used.
    generation: u64,
    /// The units of a renewal that was sent under an earlier generation than this one are not
    /// refunded either, because the store may have forgotten them.
    refunded_since: u64,
    /// True if the second number of a mark is the debt of a token bucket after the charge.
    has_debt_marks: bool,
    grants: Grants,
    /// The standing at the last exchange with the store.
    exchange: Exchange,
    demand: Demand,
    renewal: Option<RenewalInFlight>,
    /// The number of renewals so far.
    renewals: u64,
    /// No renewal is sent before this time. It is set when a renewal was denied or lost.
    next_renewal_at: u64,
    /// No renewal is sent before this time. It is set when [all units are taken](Self::take_all).
    resume_at: u64,
    /// The time of the last check that was observed.
    last_check: u64,
}

/// The maximum time without a renewal after one whose reply was lost, in microseconds.
const MAX_BACKOFF_MICROS: u64 = 1_000_000;

#[derive(Debug, Clone, Copy)]
struct Exchange {
    sent_at: u64,
    time: Timestamp,
    standing: Standing,
}

/// The renewal in flight: its number, and the time at which it was started, or sent if it has been.
#[derive(Debug, Clone, Copy)]
struct RenewalInFlight {
    number: u64,
    since: u64,
}

/// A renewal to send: a charge of at least `cost` and at most `max` units.
#[derive(Debug, Clone, Copy)]
pub(crate) struct RenewalRequest {
    number: u64,
    pub(crate) cost: u64,
    pub(crate) max: u64,
    /// The mean cost of a check of the key.
    mean_cost: u64,
    /// The time at which [`Stock::send`] sent the request. Until then, the time at which it was created.
    pub(crate) sent_at: u64,
    generation: u64,
    has_debt_marks: bool,
}

impl Stock {
    /// Creates an empty stock for a leased quota. No two stocks of a key have the same `generation`.
    pub(crate) fn new(quota: Quota, generation: u64, now: u64) -> Self {
        let lease = quota.lease().unwrap_or_default().as_micros() as u64;
        let refresh = (lease / 2).max(1);
        let standing = Standing::full(quota.capacity());
        Self {
            quota,
            capacity: quota.counted().capacity(),
            refresh,
            generation,
            refunded_since: generation,
            has_debt_marks: false,
            grants: Grants::default(),
            exchange: Exchange { sent_at: now, time: Timestamp::default(), standing },
            demand: Demand::new(refresh, now),
            renewal: None,
            renewals: 0,
            next_renewal_at: 0,
            resume_at: 0,
            last_check: now,
        }
    }

    /// Sets whether the marks of this quota are [debts](Mark::before). The default is that they are not.
    pub(crate) fn set_debt_marks(&mut self, has_debt_marks: bool) {
        self.has_debt_marks = has_debt_marks;
    }

    /// Returns the quota of the units.
    pub(crate) fn quota(&self) -> &Quota {
        &self.quota
    }

    /// Counts a check of `cost` units, whether it is admitted or denied.
    pub(crate) fn observe(&mut self, now: u64, cost: u64) {
        self.last_check = now;
        self.demand.observe(now, cost);
    }

    /// Takes `cost` units from the oldest grant that holds as many.
    ///
    /// The caller reads the clock afterwards. If the units are [usable](Taken::is_usable) then, it
    /// uses them at that time. Otherwise it [discards](Self::discard) them.
    pub(crate) fn take(&mut self, cost: u64) -> Option<Taken> {
        let (mark, end) = self.grants.take(cost)?;
        Some(Taken { mark, units: cost, end, generation: self.generation })
    }

    /// Puts the units into the stock again, because the check that took them is denied. Returns `false`
    /// if their grant has left the stock. The store has to refund them then.
    pub(crate) fn undo(&mut self, taken: &Taken) -> bool {
        taken.generation == self.generation && self.refund(taken.mark, taken.units)
    }

    /// Refunds the units of a receipt to the grant with its mark. Returns `false` if there is none. The
    /// store has to refund them then.
    pub(crate) fn refund(&mut self, mark: Mark, units: u64) -> bool {
        self.grants.refund(mark, units)
    }

    /// Puts units that were taken too late into their grant, and ends it. They are refunded to the store
    /// with the next [leftovers](Self::take_leftovers).
    pub(crate) fn discard(&mut self, taken: &Taken) -> bool {
        let is_undone = self.undo(taken);
        if is_undone {
            self.grants.end(taken);
        }
        is_undone
    }

    /// Starts a renewal, if the key has demand and its stock does not last until the reply arrives.
    ///
    /// `cost` is the cost of a check that the stock cannot pay, and 0 if it has paid. `round_trip` is the time
    /// from a request to its reply.
    ///
    /// Forced inlining: `benches/resilience.rs`, from stock.
    #[inline(always)]
    pub(crate) fn next_renewal(
        &mut self,
        now: u64,
        round_trip: u64,
        cost: u64,
    ) -> Option<RenewalRequest> {
        if self.renewal(now).is_some() || now < self.next_renewal_at.max(self.resume_at) {
            return None;
        }
        if !self.demand.is_busy(now) || round_trip >= 2 * self.refresh || cost > self.capacity {
            return None;
        }
        let expected = self.demand.expected(now);
        if cost == 0 && self.lasts(now, expected, round_trip) {
            return None;
        }
        Some(self.begin_renewal(now, expected, cost))
    }

    fn begin_renewal(&mut self, now: u64, expected: Expected, cost: u64) -> RenewalRequest {
        let mean_cost = expected.mean_cost().min(self.capacity);
        let cost = if cost == 0 { mean_cost } else { cost };
        self.renewals += 1;
        let number = self.renewals;
        self.renewal = Some(RenewalInFlight { number, since: now });
        RenewalRequest {
            number,
            cost,
            max: expected.units().max(cost),
            mean_cost,
            sent_at: now,
            generation: self.generation,
            has_debt_marks: self.has_debt_marks,
        }
    }

    /// Returns the request for no more than an equal part of the budget, or the cost of the check. So an instance whose
    /// demand exceeds the budget leaves units to the others.
    pub(crate) fn shared(&self, request: RenewalRequest, instances: u32) -> RenewalRequest {
        let share = self.capacity / u64::from(instances.max(1));
        RenewalRequest { max: request.max.min(share).max(request.cost), ..request }
    }

    /// Begins the lease of a renewal at `now`, which is read before the request is sent. Returns `false`
    /// if the renewal is no longer the one in flight, and is not to be sent.
    ///
    /// Much time may have passed since the start of the renewal: its task runs when the process polls it.
    pub(crate) fn send(&mut self, request: &mut RenewalRequest, now: u64) -> bool {
        if !self.is_current(request) {
            return false;
        }
        request.sent_at = now;
        self.renewal = self.renewal.map(|it| RenewalInFlight { since: now, ..it });
        true
    }

    /// Adds the units of a renewal to the stock. Returns the units to refund to the store at once:
    /// units of a renewal of an earlier generation, and units of a grant that has to make room.
    ///
    /// The lease is shortened by a thousandth, because the clocks of two machines may differ in rate
    /// by as much.
    #[must_use]
    pub(crate) fn granted(
        &mut self,
        request: &RenewalRequest,
        time: Timestamp,
        reply: &ChargeReply,
    ) -> Leftovers {
        let lease = u128::from(self.quota.lease_micros_at(time)) * 1000 / 1001;
        let grant = Grant {
            mark: reply.mark,
            has_debt_mark: request.has_debt_marks,
            granted: reply.units,
            units: reply.units,
            end: request.sent_at.saturating_add(lease as u64),
            is_over: false,
        };
        if !self.end_renewal(request) {
            let is_refunded = request.generation >= self.refunded_since;
            return grant.leftover().filter(|_| is_refunded).into_iter().collect();
        }
        self.record(request.sent_at, time, reply.standing);
        self.grants.add(grant).into_iter().collect()
    }

    /// Ends a renewal that the store has denied. If the store has too few units for a usual check, the
    /// next renewal is sent when a unit returns, and not before a quarter of the refresh time has
    /// passed: by then several units may have returned. Until then, checks ask the store one by one.
    pub(crate) fn denied(&mut self, request: &RenewalRequest, time: Timestamp, standing: Standing) {
        if self.end_renewal(request) {
            self.record(request.sent_at, time, standing);
            if standing.remaining < request.mean_cost {
                let wait = micros_up(standing.next_after).max(self.refresh / 4).min(self.refresh);
                self.next_renewal_at = request.sent_at.saturating_add(wait);
            }
        }
    }

    /// Ends a renewal without a reply. The store may have granted units, which are never used.
    pub(crate) fn lost(&mut self, request: &RenewalRequest) {
        if self.end_renewal(request) {
            self.next_renewal_at =
                request.sent_at.saturating_add(self.refresh.min(MAX_BACKOFF_MICROS));
        }
    }

    /// Records the standing in a reply to a request that was sent at `sent_at`.
    pub(crate) fn record(&mut self, sent_at: u64, time: Timestamp, standing: Standing) {
        if sent_at >= self.exchange.sent_at {
            self.exchange = Exchange { sent_at, time, standing };
        }
    }

    /// Takes the units that cannot be used, or that are not needed: the units of grants that have ended, and
    /// all units if the key was not checked for a refresh time.
    pub(crate) fn take_leftovers(&mut self, now: u64) -> Leftovers {
        let is_idle = now.saturating_sub(self.last_check) >= self.refresh;
        if is_idle { self.grants.take_all() } else { self.grants.take_ended(now) }
    }

    /// Takes all units, and begins a new generation: grants that were requested before are not used.
    /// No renewal is sent before `resume_at`.
    pub(crate) fn take_all(&mut self, generation: u64, resume_at: u64) -> Leftovers {
        self.generation = generation;
        self.renewal = None;
        self.next_renewal_at = 0;
        self.resume_at = self.resume_at.max(resume_at);
        self.grants.take_all()
    }

    /// Drops all units like [`take_all`](Self::take_all). They are not refunded, because the
    /// store is about to forget the units that the key has spent.
    pub(crate) fn forget(&mut self, generation: u64, resume_at: u64) {
        self.take_all(generation, resume_at);
        self.refunded_since = generation;
    }

    /// Replaces the quota, and returns all units of the old one.
    pub(crate) fn change_quota(&mut self, quota: Quota, generation: u64, now: u64) -> Leftovers {
        let leftovers = self.take_all(generation, now);
        let Self { refunded_since, resume_at, .. } = *self;
        *self = Self { refunded_since, resume_at, ..Self::new(quota, generation, now) };
        leftovers
    }

    /// Returns whether the stock is empty and the key has no demand, so that nothing is lost with it.
    pub(crate) fn is_cold(&mut self, now: u64) -> bool {
        self.grants.is_empty()
            && self.renewal(now).is_none()
            && now >= self.next_renewal_at.max(self.resume_at)
            && self.demand.is_cold(now)
    }

    /// Returns the renewal in flight, unless it takes as long as the lease: its units could not be used,
    /// or its task is on a runtime that is not running.
    fn renewal(&self, now: u64) -> Option<RenewalInFlight> {
        self.renewal.filter(|it| now.saturating_sub(it.since) < 2 * self.refresh)
    }

    /// Returns whether a renewal is in flight that was started, or sent, less than `patience` ago.
    pub(crate) fn is_renewing(&self, now: u64, patience: u64) -> bool {
        self.renewal(now).is_some_and(|it| now.saturating_sub(it.since) < patience)
    }

    /// Returns the time from one renewal to the next: half of the lease.
    pub(crate) fn refresh(&self) -> Duration {
        Duration::from_micros(self.refresh)
    }

    /// Returns the number of units that can be used at `now`.
    pub(crate) fn units_at(&self, now: u64) -> u64 {
        self.grants.units_at(now)
    }

    /// Returns whether a grant holds `cost` units at `now`.
    pub(crate) fn holds(&self, cost: u64, now: u64) -> bool {
        self.grants.holds(cost, now)
    }

    /// Returns the time of the store.
    pub(crate) fn time(&self, now: u64) -> Timestamp {
        let Exchange { sent_at, time, .. } = self.exchange;
        Timestamp::from_micros(time.as_micros().saturating_add(now.saturating_sub(sent_at)))
    }

    /// Returns the standing of the key for this process: the units that were free at the last exchange with the store,
    /// and the units of the stock.
    pub(crate) fn standing(&self, now: u64) -> Standing {
        let Exchange { sent_at, standing, .. } = self.exchange;
        let remaining = standing.remaining.saturating_add(self.units_at(now)).min(standing.limit);
        let elapsed = Duration::from_micros(now.saturating_sub(sent_at));
        // Units may have returned since. Their number is not known, so the wait for the next one
        // is the shortest possible.
        let least = standing.next_after.min(Duration::from_micros(1));
        let next_after = standing.next_after.saturating_sub(elapsed).max(least);
        let reset_after = standing.reset_after.saturating_sub(elapsed).max(next_after);
        Standing { remaining, next_after, reset_after, retry_after: None, ..standing }
    }

    /// Returns whether the stock lasts until the reply to a renewal arrives, with a margin of half a
    /// round trip, and for one check in any case.
    ///
    /// Each check from stock asks this, so nothing is divided, and the call is inlined
    /// (`benches/resilience.rs`, from stock).
    #[inline(always)]
    fn lasts(&self, now: u64, expected: Expected, round_trip: u64) -> bool {
        let horizon = round_trip.saturating_add(round_trip / 2);
        let units = self.units_at(now.saturating_add(horizon));
        let needed = expected.units().saturating_mul(horizon);
        needed < units.saturating_add(1).saturating_mul(self.refresh)
            && expected.costs_at_most(units)
    }

    /// Ends a renewal. Returns whether it was the one in flight.
    fn end_renewal(&mut self, request: &RenewalRequest) -> bool {
        self.is_current(request) && self.renewal.take().is_some()
    }

    /// Returns whether a renewal is the one in flight.
    fn is_current(&self, request: &RenewalRequest) -> bool {
        request.generation == self.generation
            && self.renewal.is_some_and(|it| it.number == request.number)
    }
}

#[cfg(test)]
#[path = "stock_tests.rs"]
mod tests;
