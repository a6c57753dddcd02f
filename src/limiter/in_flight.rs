//! The log of the units in flight: those that permits hold, and those that were released and wait to be sent to
//! a remote store.

use std::{collections::VecDeque, mem, sync::Arc, time::Duration};

use tokio::{sync::Notify, time::Instant};

use crate::{
    clock::Timestamp,
    decision::{Receipt, ReceiptLine, Source},
    policy::Charge,
    sync::Mutex,
};

/// The part of an expiry after which units are renewed.
const RENEWALS_PER_EXPIRY: u32 = 4;
/// The part of an expiry after which the keeper looks for units to renew again.
const ROUNDS_PER_EXPIRY: u32 = 16;
/// The longest expiry that counts for the time between two rounds, which is 5 s.
const MAX_EXPIRY: Duration = Duration::from_secs(80);
/// The most places that are looked at under one lock.
const MAX_PLACES_AT_ONCE: usize = 1_024;

/// The most lines in a request that releases.
const MAX_BATCH: usize = 256;
/// The most lines that wait. The units of further ones are free when they expire.
const MAX_WAITING: usize = 100_000;

#[derive(Debug, Default)]
pub(super) struct UnitsInFlight {
    log: Mutex<Log>,
    /// Wakes the task that renews: when the first units are held, when an expiry is shorter than all before, and
    /// when the limiter ends.
    pub(super) wakes_renewals: Arc<Notify>,
    /// Wakes the task that releases: when there are lines to send, and when the limiter ends.
    pub(super) wakes_releases: Arc<Notify>,
    /// Locked while a request that releases is in flight.
    pub(super) sending: tokio::sync::Mutex<()>,
}

#[derive(Debug)]
struct Log {
    places: Vec<Option<Held>>,
    free_places: Vec<usize>,
    /// The shortest expiry.
    expiry: Duration,
    /// The time of the last round of the keeper. New permits are dated with it, because reading the clock costs as
    /// much as half a check in memory (`benches/check.rs`, in flight).
    round: Instant,
    /// True while the keeper makes no rounds, because there are no permits.
    is_idle: bool,
    released: VecDeque<Released>,
}

/// The units of a permit.
#[derive(Debug)]
struct Held {
    receipt: Receipt,
    /// The last round before the units were taken, or the round of their last renewal.
    since: Instant,
    /// The round of the renewal in flight.
    renewing: Option<Instant>,
}

/// A line to refund, and the time from which its units are free in any case.
#[derive(Debug)]
pub(super) struct Released {
    line: ReceiptLine,
    expires_at: Instant,
}

/// Lines that one request refunds.
#[derive(Debug)]
pub(super) struct ReleasedBatch {
    pub(super) receipt: Receipt,
    /// The time from which all of the units are free in any case.
    expires_at: Instant,
}

/// The place of a permit. Another permit may have it later.
pub(super) type PermitId = usize;

/// A permit to renew.
#[derive(Debug)]
pub(super) struct DuePermit {
    pub(super) id: PermitId,
    /// The round in which the renewal began. The permit that has the place later is renewed in a later one.
    pub(super) round: Instant,
    pub(super) charges: Vec<Charge<'static>>,
}

impl Default for Log {
    fn default() -> Self {
        Self {
            places: Vec::new(),
            free_places: Vec::new(),
            expiry: MAX_EXPIRY,
            round: Instant::now(),
            is_idle: true,
            released: VecDeque::new(),
        }
    }
}

impl UnitsInFlight {
    /// Adds the receipt of units in flight.
    pub(super) fn hold(&self, receipt: Receipt) -> PermitId {
        let mut log = self.log.lock();
        let is_shorter =
            receipt.lines().iter().any(|line| log.shorten_expiry(line.charge.quota().window()));
        if log.is_idle {
            log.round = Instant::now();
        }
        if log.is_idle || is_shorter {
            log.is_idle = false;
            self.wakes_renewals.notify_one();
        }
        let held = Some(Held { receipt, since: log.round, renewing: None });
        if let Some(place) = log.free_places.pop() {
            log.places[place] = held;
            return place;
        }
        log.places.push(held);
        log.places.len() - 1
    }

    /// Returns a copy of the receipt of a permit, which is not used.
    pub(super) fn copy(&self, id: PermitId) -> Option<Receipt> {
        let log = self.log.lock();
        let held = log.places.get(id)?.as_ref()?;
        Some(held.receipt.copy(|_| true))
    }

    /// Removes the receipt of a permit, which has ended.
    pub(super) fn end(&self, id: PermitId) -> Option<Receipt> {
        let mut log = self.log.lock();
        let held = log.places.get_mut(id)?.take()?;
        log.free_places.push(id);
        Some(held.receipt)
    }

    /// Begins a round of the keeper. Returns the permits to renew, and the time until the next round. Returns
    /// `None` if there are no permits. The keeper is then idle until the next one.
    pub(super) fn begin_round(&self) -> Option<(Vec<DuePermit>, Duration)> {
        let now = Instant::now();
        let all = {
            let mut log = self.log.lock();
            log.round = now;
            log.is_idle = log.free_places.len() == log.places.len();
            if log.is_idle { 0 } else { log.places.len() }
        };
        let mut due = Vec::new();
        for first in (0..all).step_by(MAX_PLACES_AT_ONCE) {
            self.log.lock().begin_renewals(first, now, &mut due);
        }
        (all > 0).then(|| (due, self.log.lock().expiry / ROUNDS_PER_EXPIRY))
    }

    /// Ends a renewal with its receipt, if it has one. Returns the receipt of the units to release: the old one, or
    /// the new one if the permit has ended meanwhile.
    pub(super) fn end_renewal(
        &self,
        id: PermitId,
        round: Instant,
        renewed: Option<Receipt>,
    ) -> Option<Receipt> {
        let mut log = self.log.lock();
        let held = log.places.get_mut(id).and_then(Option::as_mut);
        let Some(held) = held.filter(|held| held.renewing == Some(round)) else { return renewed };
        held.renewing = None;
        let old = mem::replace(&mut held.receipt, renewed?);
        held.since = round;
        Some(old)
    }

    /// Adds the lines of a receipt to those that wait to be sent.
    pub(super) fn release(&self, receipt: Receipt) {
        let now = Instant::now();
        let mut log = self.log.lock();
        if log.released.is_empty() {
            self.wakes_releases.notify_one();
        }
        for line in receipt.into_lines() {
            if log.released.len() < MAX_WAITING {
                let expires_at = now + line.charge.quota().window();
                log.released.push_back(Released { line, expires_at });
            }
        }
    }

    /// Takes the next lines to send, if there are any. They are ordered by their keys, because the script releases
    /// the units of a key together.
    pub(super) fn take_released(&self) -> Option<ReleasedBatch> {
        let now = Instant::now();
        let mut log = self.log.lock();
        let mut batch = Vec::new();
        while batch.len() < MAX_BATCH
            && let Some(released) = log.released.pop_front()
        {
            // Units that have expired are free.
            if released.expires_at > now {
                batch.push(released);
            }
        }
        drop(log);
        batch.sort_by(|one, other| one.line.charge.key().cmp(other.line.charge.key()));
        let expires_at = batch.iter().map(|released| released.expires_at).max()?;
        let lines = batch.into_iter().map(|released| released.line).collect();
        let receipt = Receipt::of_many(Timestamp::default(), Source::Shared, lines);
        Some(ReleasedBatch { receipt, expires_at })
    }

    /// Puts back lines that the store has certainly not refunded.
    pub(super) fn put_back(&self, batch: ReleasedBatch) {
        let mut log = self.log.lock();
        for line in batch.receipt.into_lines() {
            log.released.push_front(Released { line, expires_at: batch.expires_at });
        }
        log.released.truncate(MAX_WAITING);
    }
}

impl Log {
    /// Returns whether this expiry is shorter than all before.
    fn shorten_expiry(&mut self, expiry: Duration) -> bool {
        let is_shorter = expiry < self.expiry;
        self.expiry = self.expiry.min(expiry);
        is_shorter
    }

    /// Adds the permits that are due from the place `first` on to `due`.
    fn begin_renewals(&mut self, first: PermitId, now: Instant, due: &mut Vec<DuePermit>) {
        for id in (first..self.places.len()).take(MAX_PLACES_AT_ONCE) {
            let Some(held) = self.places[id].as_mut().filter(|held| held.renewing.is_none()) else {
                continue;
            };
            // A policy may have become a rate meanwhile, whose units are not renewed.
            let in_force = |line: &ReceiptLine| line.charge.quota_in_force();
            let lines = held.receipt.lines().iter().filter(|line| in_force(line).is_concurrent());
            let Some(expiry) = lines.clone().map(|line| in_force(line).window()).min() else {
                continue;
            };
            let age = now - held.since;
            let is_local = held.receipt.source == Source::Fallback && !age.is_zero();
            if is_local || age >= expiry / RENEWALS_PER_EXPIRY {
                let charges = lines.map(renewal).collect();
                held.renewing = Some(now);
                due.push(DuePermit { id, round: now, charges });
            }
            self.shorten_expiry(expiry);
        }
    }
}

/// Returns the charge that renews the units of a line.
fn renewal(line: &ReceiptLine) -> Charge<'static> {
    line.charge.clone().with_cost(line.units).renewing(line.mark.highest_bit())
}

impl Drop for UnitsInFlight {
    fn drop(&mut self) {
        self.wakes_renewals.notify_one();
        self.wakes_releases.notify_one();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{policy::Policy, quota::Quota, store::Mark};

    #[tokio::test(start_paused = true)]
    async fn lines_that_have_expired_do_not_hide_the_others() {
        let units = UnitsInFlight::default();
        let expiry = Duration::from_secs(1);
        let jobs = Quota::concurrent(1_000).expires(expiry).expect("a quota");
        let jobs = Policy::new("jobs", jobs).expect("a policy");
        let release = |key: u64| {
            let line = ReceiptLine::new(jobs.charge(key, 1).into_owned(), 1, Mark::default());
            units.release(Receipt::new(Timestamp::default(), Source::Shared, [line]));
        };
        (0..2 * MAX_BATCH as u64).for_each(release);
        tokio::time::advance(expiry).await;
        (0..3).for_each(release);
        let batch = units.take_released().expect("three lines have not expired");
        assert_eq!(batch.receipt.lines().len(), 3);
        assert!(units.take_released().is_none());
    }
}
