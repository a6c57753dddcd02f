//! The queue of the units in flight that have been released, on their way to a remote store.

use std::{
    collections::VecDeque,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use tokio::{sync::Notify, time::Instant};

use crate::{
    clock::Timestamp,
    decision::{Receipt, ReceiptLine, Source},
    sync::Mutex,
};

/// The most lines in one request.
const MAX_BATCH: usize = 64;
/// The most lines that wait. The units of further ones are free when they expire.
const MAX_WAITING: usize = 100_000;

/// The time between two attempts while the store cannot answer.
pub(super) const RETRY_INTERVAL: Duration = Duration::from_millis(250);
/// The longest time for which a batch holds up the next one.
pub(super) const MAX_DELAY: Duration = Duration::from_millis(10);
/// The most batches in flight.
pub(super) const MAX_IN_FLIGHT: usize = 64;

/// The lines of the receipts that the keeper sends to the store, in batches. While a batch is in flight, the
/// next one forms.
#[derive(Debug, Default)]
pub(super) struct ReleaseQueue {
    waiting: Mutex<VecDeque<Release>>,
    in_flight: Arc<BatchesInFlight>,
    /// Wakes the task that sends when there are lines again.
    pub(super) wakes_sender: Arc<Notify>,
}

/// A line to refund, and the time from which its units are free in any case.
#[derive(Debug)]
struct Release {
    line: ReceiptLine,
    expires_at: Instant,
}

/// Lines that are refunded by one request, which is in flight until this is dropped.
#[derive(Debug)]
pub(super) struct ReleaseBatch {
    pub(super) receipt: Receipt,
    expires_at: Instant,
    in_flight: Arc<BatchesInFlight>,
}

#[derive(Debug, Default)]
struct BatchesInFlight {
    count: AtomicUsize,
    has_ended: Notify,
}

impl ReleaseQueue {
    /// Adds the lines of a receipt.
    pub(super) fn push(&self, receipt: Receipt) {
        let now = Instant::now();
        let mut waiting = self.waiting.lock();
        if waiting.is_empty() {
            self.wakes_sender.notify_one();
        }
        for line in receipt.into_lines() {
            if waiting.len() < MAX_WAITING {
                let expires_at = now + line.charge().quota().window();
                waiting.push_back(Release { line, expires_at });
            }
        }
    }

    /// Takes the next lines, if there are any.
    pub(super) fn take(&self) -> Option<ReleaseBatch> {
        let now = Instant::now();
        let mut waiting = self.waiting.lock();
        let most = waiting.len().min(MAX_BATCH);
        let (mut lines, mut expires_at) = (Vec::with_capacity(most), now);
        while lines.len() < MAX_BATCH
            && let Some(release) = waiting.pop_front()
        {
            if release.expires_at > now {
                expires_at = expires_at.max(release.expires_at);
                lines.push(release.line);
            }
        }
        if lines.is_empty() {
            return None;
        }
        // Under the lock, so that lines that do not wait any more are seen in flight.
        self.in_flight.count.fetch_add(1, Ordering::SeqCst);
        drop(waiting);
        let receipt = Receipt::of_many(Timestamp::default(), Source::Shared, by_key(lines));
        Some(ReleaseBatch { receipt, expires_at, in_flight: Arc::clone(&self.in_flight) })
    }

    /// Puts back lines that the store has certainly not refunded.
    pub(super) fn put_back(&self, mut batch: ReleaseBatch) {
        let receipt = std::mem::replace(&mut batch.receipt, Receipt::empty());
        let mut waiting = self.waiting.lock();
        for line in receipt.into_lines() {
            waiting.push_front(Release { line, expires_at: batch.expires_at });
        }
        waiting.truncate(MAX_WAITING);
        self.wakes_sender.notify_one();
    }

    /// Returns the number of batches in flight.
    pub(super) fn in_flight(&self) -> usize {
        self.in_flight.count.load(Ordering::SeqCst)
    }

    /// Waits until no batch is in flight.
    pub(super) async fn in_flight_have_ended(&self) {
        loop {
            let has_ended = self.in_flight.has_ended.notified();
            if self.in_flight() == 0 {
                return;
            }
            has_ended.await;
        }
    }
}

/// Orders lines by their keys, because the script releases the units of a key together. A line is moved only
/// once, because it is large.
fn by_key(lines: Vec<ReceiptLine>) -> Vec<ReceiptLine> {
    if lines.is_sorted_by_key(|line| line.charge().key()) {
        return lines;
    }
    let mut order: Vec<usize> = (0..lines.len()).collect();
    order.sort_by_key(|index| lines[*index].charge().key());
    let mut lines: Vec<_> = lines.into_iter().map(Some).collect();
    order.into_iter().filter_map(|index| lines[index].take()).collect()
}

impl Drop for ReleaseBatch {
    fn drop(&mut self) {
        self.in_flight.count.fetch_sub(1, Ordering::SeqCst);
        self.in_flight.has_ended.notify_waiters();
    }
}

impl Drop for ReleaseQueue {
    fn drop(&mut self) {
        self.wakes_sender.notify_one();
    }
}
