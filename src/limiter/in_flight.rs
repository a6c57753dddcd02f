//! The log of the units in flight: those that are held, and those that were released and wait to be sent to
//! a remote store.

use std::{
    collections::{BTreeMap, VecDeque},
    mem,
    sync::Arc,
    time::Duration,
};

use tokio::{sync::Notify, time::Instant};

use crate::{
    clock::Timestamp,
    decision::{Receipt, ReceiptLine, Source},
    policy::{Charge, Charges},
    store::NodeId,
    sync::Mutex,
};

/// The part of an expiry after which units are renewed.
const RENEWALS_PER_EXPIRY: u32 = 4;
/// The most lines in a request that releases.
const MAX_BATCH: usize = 256;
/// The most entries and lines that are looked at while the log is locked.
const MAX_LOOKED_AT: usize = 1_024;
/// The longest time until held units are looked at again: the expiry of its policy may become shorter.
const LOOK_AGAIN_AFTER: Duration = Duration::from_secs(5);
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
    held: BTreeMap<HeldId, Held>,
    next_id: HeldId,
    /// The time of the last round of the keeper, which makes no rounds while no units are held. New ones are
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

/// The units that one check holds.
#[derive(Debug)]
struct Held {
    receipt: Arc<Receipt>,
    /// The last round before the units were taken, or the round of their last renewal.
    since: Instant,
    /// The time before which the units are not due.
    next_look: Instant,
    is_renewing: bool,
}

/// Lines to send in one request.
#[derive(Debug)]
pub(super) struct Batch {
    pub(super) receipt: Receipt,
    /// The time at which the units of each line expire.
    free_at: Vec<Instant>,
}

/// The number of held units, which no others of the limiter have.
pub(super) type HeldId = u64;

/// Held units to renew.
#[derive(Debug)]
pub(super) struct DueUnits {
    pub(super) id: HeldId,
    pub(super) charges: Charges<'static>,
}

impl UnitsInFlight {
    /// Adds the receipt of units in flight.
    pub(super) fn hold(&self, receipt: Arc<Receipt>) -> HeldId {
        let mut log = self.log.lock();
        if log.round.is_none() {
            self.wakes_renewals.notify_one();
        }
        let since = *log.round.get_or_insert_with(Instant::now);
        let id = log.next_id;
        log.next_id += 1;
        log.held.insert(id, Held { receipt, since, next_look: since, is_renewing: false });
        id
    }

    /// Removes the receipt of units that are held no longer.
    pub(super) fn end(&self, id: HeldId) -> Option<Arc<Receipt>> {
        Some(self.log.lock().held.remove(&id)?.receipt)
    }

    /// Begins a round of the keeper. Returns its time, or `None` if no units are held.
    pub(super) fn begin_round(&self) -> Option<Instant> {
        let mut log = self.log.lock();
        log.round = (!log.held.is_empty()).then(Instant::now);
        log.round
    }

    /// Takes the units to renew in this round, among some from number `next` on. Moves `next` behind them, or sets
    /// it to `None` at the end.
    pub(super) fn take_due(&self, round: Instant, next: &mut Option<HeldId>) -> Vec<DueUnits> {
        let Some(first) = next.take() else { return Vec::new() };
        let mut log = self.log.lock();
        let mut rest = log.held.range_mut(first..);
        let some = rest.by_ref().take(MAX_LOOKED_AT);
        let due = some.filter_map(|(id, held)| held.begin_renewal(*id, round)).collect();
        *next = rest.next().map(|(id, _)| *id);
        due
    }

    /// Ends the renewal of units with the new receipt, if there is one. Returns the receipt of the units to release:
    /// the old one, or the new one if the units are held no longer.
    pub(super) fn end_renewal(
        &self,
        id: HeldId,
        asked_at: Instant,
        renewed: Option<Arc<Receipt>>,
    ) -> Option<Arc<Receipt>> {
        let mut log = self.log.lock();
        let Some(held) = log.held.get_mut(&id) else { return renewed };
        held.is_renewing = false;
        let old = mem::replace(&mut held.receipt, renewed?);
        (held.since, held.next_look) = (asked_at, asked_at);
        Some(old)
    }

    /// Adds the lines of a receipt to those that wait to be sent.
    pub(super) fn release(&self, receipt: &Receipt) {
        let mut log = self.log.lock();
        if log.released.is_empty() {
            self.wakes_releases.notify_one();
        }
        let now = Instant::now();
        log.wait_to_be_sent(receipt.copy(|_| true).into_lines().map(|line| {
            let free_at = now + line.charge.quota_in_force().window();
            Released { line, free_at }
        }));
    }

    /// Takes the next lines to send, if there are any: lines of one [`node`](crate::store::Store::node), so that a node
    /// that fails delays the others little. They are ordered by their keys, because the script releases the units
    /// of a key together.
    pub(super) fn take_released(&self, node: impl Fn(&Charge<'_>) -> NodeId) -> Option<Batch> {
        let mut taken = Vec::new();
        let mut taken_node = None;
        let mut looked_at = 0;
        let now = Instant::now();
        let mut log = self.log.lock();
        let mut left = log.released.len();
        while left > 0 && looked_at < MAX_LOOKED_AT && taken.len() < MAX_BATCH {
            left -= 1;
            // Lines that have expired do not end the search, or they would hide the others.
            let Some(released) = log.released.pop_front().filter(|it| it.free_at > now) else {
                continue;
            };
            looked_at += 1;
            let node = node(&released.line.charge);
            if *taken_node.get_or_insert(node) == node {
                taken.push(released);
            } else {
                log.released.push_back(released);
            }
        }
        drop(log);
        if taken.is_empty() {
            return None;
        }
        taken.sort_by(|one, other| one.line.charge.key().cmp(other.line.charge.key()));
        let free_at = taken.iter().map(|it| it.free_at).collect();
        let lines = taken.into_iter().map(|it| it.line);
        Some(Batch { receipt: Receipt::new(Timestamp::default(), Source::Shared, lines), free_at })
    }

    /// Puts back lines that the store has certainly not refunded, behind the others.
    pub(super) fn put_back(&self, Batch { receipt, free_at }: Batch) {
        let lines = receipt.into_lines().zip(free_at);
        let released = lines.map(|(line, free_at)| Released { line, free_at });
        self.log.lock().wait_to_be_sent(released);
    }
}

impl Log {
    /// Adds lines to those that wait to be sent, as far as there is room.
    fn wait_to_be_sent(&mut self, lines: impl Iterator<Item = Released>) {
        let room = MAX_WAITING.saturating_sub(self.released.len());
        self.released.extend(lines.take(room));
    }
}

impl Held {
    /// Begins a renewal, if the units are due: at a quarter of the expiry, or at a sixteenth if the fallback has
    /// admitted them. A policy may have become a rate meanwhile, whose units are not renewed.
    ///
    /// A renewal that fails is tried again after a sixteenth of the expiry.
    fn begin_renewal(&mut self, id: HeldId, now: Instant) -> Option<DueUnits> {
        if self.is_renewing || now < self.next_look {
            return None;
        }
        self.next_look = now + LOOK_AGAIN_AFTER;
        let lines = self.receipt.lines().iter();
        let in_flight = lines.filter(|line| line.charge.quota_in_force().is_concurrent());
        let expiry = in_flight.clone().map(|line| line.charge.quota_in_force().window()).min()?;
        let is_local = self.receipt.source == Source::Fallback;
        let renewals = if is_local { 4 * RENEWALS_PER_EXPIRY } else { RENEWALS_PER_EXPIRY };
        let due_at = self.since + expiry / renewals;
        if now < due_at {
            self.next_look = self.next_look.min(due_at);
            return None;
        }
        let charges = in_flight.map(renewal).collect();
        self.next_look = now + expiry / (4 * RENEWALS_PER_EXPIRY);
        self.is_renewing = true;
        Some(DueUnits { id, charges })
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
    use crate::{decision::Mark, key::Key, policy::Policy, quota::Quota};

    #[tokio::test(start_paused = true)]
    async fn lines_that_have_expired_do_not_hide_the_others() {
        let units = UnitsInFlight::default();
        let expiry = Duration::from_secs(1);
        let jobs = Quota::concurrent(1_000).expires(expiry).expect("a quota");
        let jobs = Policy::new("jobs", jobs).expect("a policy");
        let release = |key: u64| {
            let charge = jobs.charge(key, 1).into_owned();
            let line = ReceiptLine::new(charge, 1, Mark::default());
            units.release(&Receipt::new(Timestamp::default(), Source::Shared, [line]));
        };
        (0..2 * MAX_BATCH as u64).for_each(release);
        let batch = units.take_released(|_| NodeId::ONLY).expect("none has expired");
        assert_eq!(batch.receipt.lines().len(), MAX_BATCH);
        units.put_back(batch);
        tokio::time::advance(expiry).await;
        (0..3).for_each(release);
        let batch = units.take_released(|_| NodeId::ONLY).expect("three lines have not expired");
        assert_eq!(batch.receipt.lines().len(), 3);
        assert!(units.take_released(|_| NodeId::ONLY).is_none());
    }

    #[tokio::test(start_paused = true)]
    async fn lines_that_are_put_back_do_not_delay_another_node() {
        let units = UnitsInFlight::default();
        let jobs = Policy::new("jobs", Quota::concurrent(1_000)).expect("a policy");
        let lines = (0..10_u64).map(|key| {
            let mark = Mark([key % 2, 0, 0]);
            ReceiptLine::new(jobs.charge(key, 1).into_owned(), 1, mark)
        });
        let numbers: Vec<Key> = (0..10_u64).map(Key::from).collect();
        let node = |charge: &Charge<'_>| {
            let number = numbers.iter().position(|key| key == charge.key()).expect("a key");
            NodeId(number as u32 % 2)
        };
        units.release(&Receipt::new(Timestamp::default(), Source::Shared, lines));
        let of_one = |batch: &Batch| {
            let marks: Vec<_> = batch.receipt.lines().iter().map(|line| line.mark.0[0]).collect();
            assert!(marks.len() == 5 && marks.iter().all(|it| *it == marks[0]), "{marks:?}");
            marks[0]
        };
        let first = units.take_released(node).expect("ten lines");
        let failing = of_one(&first);
        units.put_back(first);
        let second = units.take_released(node).expect("five of the other node");
        assert_ne!(of_one(&second), failing);
        assert_eq!(of_one(&units.take_released(node).expect("those put back")), failing);
        assert!(units.take_released(node).is_none());
    }

    /// A renewal that fails is not tried again in each round.
    #[tokio::test(start_paused = true)]
    async fn a_renewal_that_fails_waits_for_a_sixteenth_of_the_expiry() {
        let units = UnitsInFlight::default();
        let expiry = Duration::from_secs(16);
        let jobs = Quota::concurrent(10).expires(expiry).expect("a quota");
        let jobs = Policy::new("jobs", jobs).expect("a policy");
        let line = ReceiptLine::new(jobs.charge("all", 1).into_owned(), 1, Mark::default());
        units.hold(Arc::new(Receipt::new(Timestamp::default(), Source::Shared, [line])));
        let mut attempts = Vec::new();
        for millis in 0..8_000 {
            let round = units.begin_round().expect("held units");
            for due in units.take_due(round, &mut Some(0)) {
                attempts.push(millis);
                assert!(units.end_renewal(due.id, round, None).is_none());
            }
            tokio::time::advance(Duration::from_millis(1)).await;
        }
        assert_eq!(attempts, [4_000, 5_000, 6_000, 7_000]);
    }
}
