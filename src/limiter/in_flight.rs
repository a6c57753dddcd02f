//! The log of the units in flight: those that permits hold, and those that were released and wait to be sent to
//! a remote store.

use std::{
    collections::{BTreeMap, VecDeque},
    mem,
    sync::Arc,
};

use tokio::{sync::Notify, time::Instant};

use crate::{
    clock::Timestamp,
    decision::{Receipt, ReceiptLine, Source},
    policy::{Charge, Charges},
    sync::Mutex,
};

/// The part of an expiry after which units are renewed.
const RENEWALS_PER_EXPIRY: u32 = 4;
/// The most lines in a request that releases.
const MAX_BATCH: usize = 256;
/// The most lines that wait. The units of further ones are free when they expire.
const MAX_WAITING: usize = 100_000;

#[derive(Debug, Default)]
pub(super) struct UnitsInFlight {
    log: Mutex<Log>,
    /// Wakes the task that renews: when the first units are held, and when the limiter ends.
    pub(super) wakes_renewals: Arc<Notify>,
    /// Wakes the task that releases: when there are lines to send, and when the limiter ends.
    pub(super) wakes_releases: Arc<Notify>,
    /// Locked while a request that releases is in flight.
    pub(super) sending: tokio::sync::Mutex<()>,
}

#[derive(Debug, Default)]
struct Log {
    permits: BTreeMap<PermitId, Held>,
    next_id: PermitId,
    /// The time of the last round of the keeper, which makes no rounds while there are no permits. New permits are
    /// dated with it, because reading the clock costs as much as half a check in memory (`benches/check.rs`, in
    /// flight).
    round: Option<Instant>,
    released: VecDeque<Released>,
}

/// Units to release. Without a release, they expire at `free_at`.
#[derive(Debug)]
struct Released {
    line: ReceiptLine,
    free_at: Instant,
}

/// The units of a permit.
#[derive(Debug)]
struct Held {
    receipt: Receipt,
    /// The last round before the units were taken, or the round of their last renewal.
    since: Instant,
    is_renewing: bool,
}

/// The number of a permit, which no other permit of the limiter has.
pub(super) type PermitId = u64;

/// A permit to renew.
#[derive(Debug)]
pub(super) struct DuePermit {
    pub(super) id: PermitId,
    pub(super) charges: Charges<'static>,
}

impl UnitsInFlight {
    /// Adds the receipt of units in flight.
    pub(super) fn hold(&self, receipt: Receipt) -> PermitId {
        let mut log = self.log.lock();
        if log.round.is_none() {
            self.wakes_renewals.notify_one();
        }
        let since = *log.round.get_or_insert_with(Instant::now);
        let id = log.next_id;
        log.next_id += 1;
        log.permits.insert(id, Held { receipt, since, is_renewing: false });
        id
    }

    /// Removes the receipt of a permit, which has ended.
    pub(super) fn end(&self, id: PermitId) -> Option<Receipt> {
        Some(self.log.lock().permits.remove(&id)?.receipt)
    }

    /// Begins a round of the keeper. Returns the permits to renew, or `None` if there are no permits.
    pub(super) fn begin_round(&self) -> Option<Vec<DuePermit>> {
        let now = Instant::now();
        let mut log = self.log.lock();
        log.round = (!log.permits.is_empty()).then_some(now);
        log.round?;
        Some(log.permits.iter_mut().filter_map(|(id, held)| held.begin_renewal(*id, now)).collect())
    }

    /// Ends the renewal of a permit with the new receipt, if it has one. Returns the receipt of the units to release:
    /// the old one, or the new one if the permit has ended meanwhile.
    pub(super) fn end_renewal(
        &self,
        id: PermitId,
        asked_at: Instant,
        renewed: Option<Receipt>,
    ) -> Option<Receipt> {
        let mut log = self.log.lock();
        let Some(held) = log.permits.get_mut(&id) else { return renewed };
        held.is_renewing = false;
        let old = mem::replace(&mut held.receipt, renewed?);
        held.since = asked_at;
        Some(old)
    }

    /// Adds the lines of a receipt to those that wait to be sent.
    pub(super) fn release(&self, receipt: Receipt) {
        let mut log = self.log.lock();
        if log.released.is_empty() {
            self.wakes_releases.notify_one();
        }
        let (now, room) = (Instant::now(), MAX_WAITING.saturating_sub(log.released.len()));
        log.released.extend(receipt.into_lines().take(room).map(|line| {
            let free_at = now + line.charge.quota_in_force().window();
            Released { line, free_at }
        }));
    }

    /// Takes the next lines to send, if there are any. They are ordered by their keys, because the script releases
    /// the units of a key together. Also returns the time by which all of them have expired.
    pub(super) fn take_released(&self) -> Option<(Receipt, Instant)> {
        let mut log = self.log.lock();
        let now = Instant::now();
        log.released.retain(|it| it.free_at > now);
        let count = log.released.len().min(MAX_BATCH);
        let taken: Vec<_> = log.released.drain(..count).collect();
        drop(log);
        let free_at = taken.iter().map(|it| it.free_at).max()?;
        let mut lines: Vec<_> = taken.into_iter().map(|it| it.line).collect();
        lines.sort_by(|one, other| one.charge.key().cmp(other.charge.key()));
        Some((Receipt::new(Timestamp::default(), Source::Shared, lines), free_at))
    }

    /// Puts back lines that the store has certainly not refunded. Their units expire by `free_at`.
    pub(super) fn put_back(&self, receipt: Receipt, free_at: Instant) {
        let mut log = self.log.lock();
        receipt.into_lines().for_each(|line| log.released.push_front(Released { line, free_at }));
        log.released.truncate(MAX_WAITING);
    }
}

impl Held {
    /// Begins a renewal, if the units are due: at a quarter of the expiry, or at a sixteenth if the fallback has
    /// admitted them. A policy may have become a rate meanwhile, whose units are not renewed.
    fn begin_renewal(&mut self, id: PermitId, now: Instant) -> Option<DuePermit> {
        let in_force = |line: &ReceiptLine| line.charge.quota_in_force();
        let lines = self.receipt.lines().iter().filter(|line| in_force(line).is_concurrent());
        let expiry = lines.clone().map(|line| in_force(line).window()).min()?;
        let age = now - self.since;
        let is_local = self.receipt.source == Source::Fallback;
        let renewals = if is_local { 4 * RENEWALS_PER_EXPIRY } else { RENEWALS_PER_EXPIRY };
        if self.is_renewing || age < expiry / renewals {
            return None;
        }
        let charges = lines.map(renewal).collect();
        self.is_renewing = true;
        Some(DuePermit { id, charges })
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
    use std::time::Duration;

    use super::*;
    use crate::{decision::Mark, policy::Policy, quota::Quota};

    #[tokio::test(start_paused = true)]
    async fn lines_that_have_expired_do_not_hide_the_others() {
        let units = UnitsInFlight::default();
        let expiry = Duration::from_secs(1);
        let jobs = Quota::concurrent(1_000).expires(expiry).expect("a quota");
        let jobs = Policy::new("jobs", jobs).expect("a policy");
        let release = |key: u64| {
            let charge = jobs.charge(key, 1).into_owned();
            let line = ReceiptLine::new(charge, 1, Mark::default());
            units.release(Receipt::new(Timestamp::default(), Source::Shared, [line]));
        };
        (0..2 * MAX_BATCH as u64).for_each(release);
        let (receipt, free_at) = units.take_released().expect("none has expired");
        units.put_back(receipt, free_at);
        tokio::time::advance(expiry).await;
        (0..3).for_each(release);
        let (receipt, _) = units.take_released().expect("three lines have not expired");
        assert_eq!(receipt.lines().len(), 3);
        assert!(units.take_released().is_none());
    }
}
