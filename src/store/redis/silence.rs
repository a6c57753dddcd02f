//! A connection that says nothing any more.
//!
//! The other end of a connection can go without a word (a cable, a firewall, a machine that lost its
//! power). Whoever asked gives up after its deadline; that nobody has got an answer for a while is
//! what tells a dead connection from one slow answer.

use std::{
    sync::atomic::{AtomicU64, Ordering},
    time::Duration,
};

use tokio::time::Instant;

/// A connection on which nothing has come back for so long, though something was asked, is given
/// up. Shorter than the usual deadline of a check, so that the next one gets a new connection.
const LONGEST: Duration = Duration::from_millis(40);

/// Since when a connection owes an answer.
#[derive(Debug)]
pub(super) struct Silence {
    begin: Instant,
    /// Microseconds since `begin`; 0 if nothing is owed.
    since: AtomicU64,
}

impl Default for Silence {
    fn default() -> Self {
        Self { begin: Instant::now(), since: AtomicU64::new(0) }
    }
}

impl Silence {
    /// Something was asked.
    pub(super) fn begin(&self) {
        let _ = self.since.compare_exchange(0, self.now(), Ordering::Relaxed, Ordering::Relaxed);
    }

    /// Something has come back.
    pub(super) fn end(&self) {
        self.since.store(0, Ordering::Relaxed);
    }

    /// Whether it has lasted too long.
    pub(super) fn is_death(&self) -> bool {
        let since = self.since.load(Ordering::Relaxed);
        since != 0 && self.now().saturating_sub(since) >= LONGEST.as_micros() as u64
    }

    fn now(&self) -> u64 {
        self.begin.elapsed().as_micros() as u64 + 1
    }
}
