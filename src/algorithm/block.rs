//! A block: until a fixed time, no unit of a key is free, whatever its algorithm says.
//!
//! The key keeps the state of its algorithm during the block. Forced charges and refunds change this
//! state, and the algorithm decides again when the block has ended.

use std::time::Duration;

use crate::{clock::Timestamp, decision::Standing, quota::Quota};

/// The time until which a key is blocked.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Block {
    /// The first microsecond after the block.
    until: u64,
    /// The duration for which the block was made, in microseconds.
    duration: u64,
}

impl Block {
    /// Creates a block that begins at `now`.
    pub(crate) fn new(now: Timestamp, duration: Duration) -> Self {
        let duration = block_micros(duration);
        Self { until: now.as_micros() + duration, duration }
    }

    /// Cuts the rest of the block to its whole duration. The rest is longer only if the clock has been
    /// set back. Without the cut, the block would last until the clock has caught up.
    pub(super) fn heal(&mut self, now: Timestamp) {
        self.until = self.until.min(now.as_micros() + self.duration);
    }

    /// Returns whether the block refuses charges at `now`.
    pub(super) fn is_in_force(self, now: Timestamp) -> bool {
        now.as_micros() < self.until
    }

    /// Returns the block of the two that ends later.
    pub(super) fn or_later(self, other: Self) -> Self {
        if other.until > self.until { other } else { self }
    }

    pub(super) fn ends_at(self) -> Timestamp {
        Timestamp::from_micros(self.until)
    }

    /// Returns the standing of a key that is blocked at `now`. `standing` is that of its algorithm, for
    /// a charge of `units`.
    pub(super) fn restrict(self, standing: Standing, now: Timestamp, units: u64) -> Standing {
        let Standing { limit, remaining, next_after, reset_after, retry_after } = standing;
        let rest = self.until.saturating_sub(now.as_micros());
        Standing {
            limit,
            remaining: 0,
            next_after: if remaining > 0 { rest } else { rest.max(next_after) },
            reset_after: rest.max(reset_after),
            retry_after: (units > 0 && units <= limit).then(|| rest.max(retry_after.unwrap_or(0))),
        }
    }
}

/// Returns the duration of a block in microseconds, rounded up and between 1 us and the longest window.
pub(crate) fn block_micros(duration: Duration) -> u64 {
    let micros = duration.min(Quota::MAX_WINDOW).as_nanos().div_ceil(1000).max(1);
    u64::try_from(micros).unwrap_or(u64::MAX)
}
