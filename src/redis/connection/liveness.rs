//! The state of a connection, which its requests and its health check update.

use std::{
    sync::atomic::{AtomicBool, AtomicU64, Ordering},
    time::Duration,
};

use tokio::time::Instant;

/// The time without a reply from which on a connection is idle.
const IDLE_AFTER: Duration = Duration::from_secs(1);

/// The state of a connection, which its requests and its health check update.
#[derive(Debug)]
pub(super) struct Liveness {
    created: Instant,
    /// The time of the last reply, in microseconds since `created`.
    last_reply: AtomicU64,
    is_closed: AtomicBool,
    is_desynchronized: AtomicBool,
}

impl Default for Liveness {
    fn default() -> Self {
        Self {
            created: Instant::now(),
            last_reply: AtomicU64::new(0),
            is_closed: AtomicBool::new(false),
            is_desynchronized: AtomicBool::new(false),
        }
    }
}

impl Liveness {
    /// Records that a reply has arrived.
    pub(super) fn record_reply(&self) {
        self.last_reply.store(self.now(), Ordering::Relaxed);
    }

    /// Returns the time of the last reply, in microseconds since the connection was created.
    pub(super) fn last_reply(&self) -> u64 {
        self.last_reply.load(Ordering::Relaxed)
    }

    /// Returns whether no reply has arrived for [`IDLE_AFTER`].
    pub(super) fn is_idle(&self) -> bool {
        self.now().saturating_sub(self.last_reply()) >= IDLE_AFTER.as_micros() as u64
    }

    /// Closes the connection for new requests.
    pub(super) fn close(&self) {
        self.is_closed.store(true, Ordering::Release);
    }

    /// Returns whether the connection takes no new requests.
    pub(super) fn is_closed(&self) -> bool {
        self.is_closed.load(Ordering::Acquire)
    }

    /// Closes the connection because a reply belonged to another request. The replies in flight are
    /// discarded. Returns whether this is the first such reply.
    pub(super) fn desynchronize(&self) -> bool {
        let is_first = !self.is_desynchronized.swap(true, Ordering::AcqRel);
        self.close();
        is_first
    }

    /// Returns whether a reply belonged to another request.
    pub(super) fn is_desynchronized(&self) -> bool {
        self.is_desynchronized.load(Ordering::Acquire)
    }

    fn now(&self) -> u64 {
        self.created.elapsed().as_micros() as u64
    }
}
