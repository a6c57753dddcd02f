//! The queue of the units in flight that have been released, on their way to a remote store.

use std::{collections::VecDeque, time::Duration};

use tokio::time::Instant;

use crate::{
    clock::Timestamp,
    decision::{Receipt, ReceiptLine, Source},
    sync::Mutex,
};

/// The most lines in one request.
const MAX_BATCH: usize = 64;
/// The most lines that wait. The units of further ones are free when they expire.
const MAX_WAITING: usize = 100_000;

/// The lines of the receipts that a task sends to the store, in batches. While a batch is in flight, the
/// next one forms.
#[derive(Debug, Default)]
pub(super) struct ReleaseQueue(Mutex<Waiting>);

#[derive(Debug, Default)]
struct Waiting {
    lines: VecDeque<Release>,
    is_sending: bool,
}

/// A line to refund, and the time from which its units are free in any case.
#[derive(Debug)]
struct Release {
    line: ReceiptLine,
    expires_at: Instant,
}

/// Lines that are refunded by one request.
#[derive(Debug)]
pub(super) struct ReleaseBatch {
    pub(super) receipt: Receipt,
    expires_at: Instant,
}

impl ReleaseQueue {
    /// Adds the lines of a receipt. Returns whether the caller has to start the task that sends them.
    pub(super) fn push(&self, receipt: Receipt) -> bool {
        let now = Instant::now();
        let mut waiting = self.0.lock();
        for line in receipt.into_lines() {
            if waiting.lines.len() < MAX_WAITING {
                let expires_at = now + line.charge().quota().window();
                waiting.lines.push_back(Release { line, expires_at });
            }
        }
        !waiting.is_sending
    }

    /// Claims the role of the task that sends. Returns false if another task has it, or if nothing waits.
    pub(super) fn begin(&self) -> bool {
        let mut waiting = self.0.lock();
        let begins = !waiting.is_sending && !waiting.lines.is_empty();
        waiting.is_sending |= begins;
        begins
    }

    /// Ends the role of the task that sends.
    pub(super) fn end(&self) {
        self.0.lock().is_sending = false;
    }

    /// Takes the next lines, or ends the role of the task if nothing waits.
    pub(super) fn take(&self) -> Option<ReleaseBatch> {
        let now = Instant::now();
        let mut waiting = self.0.lock();
        let (mut lines, mut expires_at) = (Vec::new(), now);
        while lines.len() < MAX_BATCH
            && let Some(release) = waiting.lines.pop_front()
        {
            if release.expires_at > now {
                expires_at = expires_at.max(release.expires_at);
                lines.push(release.line);
            }
        }
        if lines.is_empty() {
            waiting.is_sending = false;
            return None;
        }
        let receipt = Receipt::new(Timestamp::default(), Source::Shared, lines);
        Some(ReleaseBatch { receipt, expires_at })
    }

    /// Puts back lines that the store has certainly not refunded.
    pub(super) fn put_back(&self, ReleaseBatch { receipt, expires_at }: ReleaseBatch) {
        let mut waiting = self.0.lock();
        for line in receipt.into_lines() {
            waiting.lines.push_front(Release { line, expires_at });
        }
        waiting.lines.truncate(MAX_WAITING);
    }
}

/// The time between two attempts while the store cannot answer.
pub(super) const RETRY_INTERVAL: Duration = Duration::from_millis(250);
/// The longest time for which a batch holds up the next one.
pub(super) const MAX_DELAY: Duration = Duration::from_millis(10);
/// The most batches in flight.
pub(super) const MAX_IN_FLIGHT: usize = 64;
