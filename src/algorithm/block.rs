//! A block: until a fixed time, no unit of a key is free, whatever its algorithm says.
//!
//! The key keeps the state of its algorithm during the block. Forced charges and refunds change this
//! state, and the algorithm decides again when the block has ended.

use std::time::Duration;

use super::{
    Asked, At, KeyState, Refund, State, Stored,
    bytes::{MAX_NUMBER, Numbers, write_numbers},
};
use crate::{
    clock::Timestamp,
    decision::{ChargeReply, Mark, Standing},
    quota::Quota,
};

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

    /// Appends the numbers of the block to the bytes of its key.
    pub(super) fn write(self, bytes: &mut Vec<u8>) {
        write_numbers(bytes, [self.until, self.duration]);
    }

    /// Restores a block from its numbers.
    pub(super) fn read(numbers: &mut Numbers<'_>) -> Option<Self> {
        Some(Self { until: numbers.next(MAX_NUMBER)?, duration: numbers.next(MAX_NUMBER)? })
    }

    /// Returns the standing of a key that is blocked at `now`. `standing` is the standing by its algorithm, for
    /// a charge of `units`.
    pub(super) fn restrict(self, standing: Standing, now: Timestamp, units: u64) -> Standing {
        let Standing { limit, remaining, next_after, reset_after, retry_after } = standing;
        let rest = Duration::from_micros(self.until.saturating_sub(now.as_micros()));
        Standing {
            limit,
            remaining: 0,
            next_after: if remaining > 0 { rest } else { rest.max(next_after) },
            reset_after: rest.max(reset_after),
            retry_after: (units > 0 && units <= limit)
                .then(|| rest.max(retry_after.unwrap_or_default())),
        }
    }
}

/// A block, and the state of the algorithm during the block. After its end, the block remains until the
/// key is charged.
#[cfg_attr(test, derive(Clone))]
#[derive(Debug)]
pub(crate) struct BlockedKey {
    pub(super) block: Block,
    pub(super) state: KeyState,
}

impl Stored for BlockedKey {
    fn heal(&mut self, now: Timestamp) {
        self.block.heal(now);
        self.state.heal(now);
    }

    fn refund(&mut self, quota: &Quota, now: Timestamp, refund: &Refund) -> u64 {
        self.state.refund(quota, now, refund)
    }

    fn release(&mut self, mark: Mark, units: u64) {
        self.state.release(mark, units);
    }

    fn expires_at(&self) -> Timestamp {
        self.state.expires_at().max(self.block.ends_at())
    }

    fn outstanding(&self, now: Timestamp) -> u64 {
        self.state.outstanding(now)
    }

    fn heap_bytes(&self) -> usize {
        size_of_val(self) + self.state.heap_bytes()
    }

    fn write(&self, bytes: &mut Vec<u8>) {
        self.block.write(bytes);
        self.state.write(bytes);
    }
}

impl State for BlockedKey {
    fn affords(&mut self, quota: &Quota, now: Timestamp, units: u64) -> bool {
        self.block.heal(now);
        if self.block.is_in_force(now) { units == 0 } else { self.state.affords(quota, now, units) }
    }

    fn standing(&mut self, quota: &Quota, now: Timestamp, units: u64) -> Standing {
        self.block.heal(now);
        let standing = self.state.standing(quota, now, units);
        if self.block.is_in_force(now) {
            self.block.restrict(standing, now, units)
        } else {
            standing
        }
    }

    /// No unit is free during the block.
    fn spend(&mut self, quota: &Quota, asked: Asked, at: At<'_>) -> ChargeReply {
        let forced = Asked::forced(asked.units(0));
        if forced.cost > 0 {
            let reply = self.state.spend(quota, forced, at);
            return ChargeReply {
                standing: self.block.restrict(reply.standing, at.now, 0),
                ..reply
            };
        }
        // The wait is the wait of the refused cost, which may be longer than the block.
        let standing = self.state.standing(quota, at.now, asked.cost);
        ChargeReply::peeked(asked.cost, self.block.restrict(standing, at.now, asked.cost))
    }
}

/// Returns the duration of a block in microseconds, rounded up and between 1 us and the longest window.
pub(crate) fn block_micros(duration: Duration) -> u64 {
    let micros = duration.min(Quota::MAX_WINDOW).as_nanos().div_ceil(1000).max(1);
    u64::try_from(micros).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(micros: u64) -> Timestamp {
        Timestamp::from_micros(micros)
    }

    #[test]
    fn the_standing_combines_the_algorithm_and_the_block() {
        let block = Block { until: 1_000, duration: 600 };
        let standing = Standing {
            limit: 10,
            remaining: 0,
            next_after: Duration::from_micros(700),
            reset_after: Duration::from_micros(800),
            retry_after: Some(Duration::from_micros(750)),
        };
        // The units come back after the end of the block, and then before it.
        let late = block.restrict(standing, at(400), 1);
        assert_eq!(late, Standing { ..standing });
        let early = block.restrict(standing, at(100), 1);
        let wait = Duration::from_micros(900);
        let waits =
            Standing { next_after: wait, reset_after: wait, retry_after: Some(wait), ..standing };
        assert_eq!(early, waits);
        // A unit that is left is free when the block ends.
        let left = block.restrict(Standing { remaining: 3, ..standing }, at(400), 1);
        let waits = [600, 800].map(Duration::from_micros);
        assert_eq!((left.remaining, [left.next_after, left.reset_after]), (0, waits));
        // A charge of nothing, and one that no wait lets pass.
        assert_eq!(block.restrict(standing, at(400), 0).retry_after, None);
        assert_eq!(block.restrict(standing, at(400), 11).retry_after, None);
        assert_eq!(
            block.restrict(standing, at(400), 10).retry_after,
            Some(Duration::from_micros(750))
        );
        let unknown = Standing { retry_after: None, ..standing };
        assert_eq!(
            block.restrict(unknown, at(400), 1).retry_after,
            Some(Duration::from_micros(600))
        );
    }

    #[test]
    fn a_block_ends_once_and_never_later_than_its_duration() {
        let block = Block { until: 1_000, duration: 600 };
        assert!(block.is_in_force(at(999)) && !block.is_in_force(at(1_000)));
        let mut healed = block;
        healed.heal(at(500));
        assert_eq!(healed.ends_at(), at(1_000));
        healed.heal(at(300));
        assert_eq!(healed.ends_at(), at(900));
        let longer = Block { until: 1_001, duration: 1 };
        assert_eq!(block.or_later(longer).duration, 1);
        assert_eq!(longer.or_later(block).duration, 1);
        assert_eq!(block.or_later(Block { until: 1_000, duration: 1 }).duration, 600);
    }

    #[test]
    fn the_duration_of_a_block_is_rounded_up_and_bounded() {
        assert_eq!(block_micros(Duration::ZERO), 1);
        assert_eq!(block_micros(Duration::from_nanos(1_001)), 2);
        assert_eq!(block_micros(Duration::MAX), Quota::MAX_WINDOW.as_micros() as u64);
    }
}
