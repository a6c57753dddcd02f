//! The rank of an entry, by which a full shard chooses the entry that it evicts.

use crate::{clock::Timestamp, decision::Standing};

/// The share of its quota that a key had spent at its last check, as one of eight classes, and the
/// time of that check.
///
/// The share is that of the key's own quota: 6 of 10 units are in the class of 60 of 100. A denial by
/// itself does not change the class.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Rank(u64);

/// The number of share classes. The last one has the keys that have spent their whole quota, the one
/// before it those that have spent at least a half, then a quarter, an eighth, and so on. The first one
/// has the keys that have spent less than 1/64.
pub(super) const CLASSES: usize = 8;

/// The class of the keys that have spent their whole quota.
pub(super) const SPENT: usize = CLASSES - 1;

/// The number of bits of the time, which is below 2^53 microseconds.
const TIME_BITS: u32 = 61;

impl Rank {
    /// Creates the rank of a key that has this standing after a check at `now`.
    #[inline]
    pub(super) fn new(standing: &Standing, now: Timestamp) -> Self {
        let Standing { limit, remaining, .. } = *standing;
        let spent = limit.saturating_sub(remaining);
        // The number of times that the spent units have to be doubled to reach the limit.
        let doublings = spent.leading_zeros().saturating_sub(limit.leading_zeros());
        let reaches = spent.wrapping_shl(doublings) >= limit;
        let class = match spent {
            0 => 0,
            _ => (SPENT as u64).saturating_sub(u64::from(doublings) + u64::from(!reaches)),
        };
        Self(class << TIME_BITS | now.as_micros())
    }

    /// Returns the class of the share, less than [`CLASSES`].
    pub(super) fn class(self) -> usize {
        (self.0 >> TIME_BITS) as usize
    }

    /// Returns the time of the last check, in microseconds.
    pub(super) fn checked_at(self) -> u64 {
        self.0 & ((1 << TIME_BITS) - 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn class(spent: u64, limit: u64) -> usize {
        let standing = Standing { remaining: limit - spent, ..Standing::full(limit) };
        let rank = Rank::new(&standing, Timestamp::MAX);
        assert_eq!(rank.checked_at(), Timestamp::MAX.as_micros());
        rank.class()
    }

    #[test]
    fn a_class_is_a_halving_of_the_quota() {
        for limit in (1..200).chain([1 << 20, (1 << 20) + 1, 1 << 31, (1 << 53) - 1]) {
            let spents = (0..=limit.min(200)).chain((0..20).map(|shift| limit >> shift));
            for spent in spents {
                let reaches = |halvings: &u32| u128::from(spent) << halvings >= u128::from(limit);
                let halvings = (0..7).find(reaches).unwrap_or(7);
                assert_eq!(class(spent, limit), 7 - halvings as usize, "{spent} of {limit}");
            }
        }
    }

    #[test]
    fn a_share_is_one_of_the_own_quota() {
        assert_eq!(class(60, 100), class(6, 10));
        assert!(class(6, 10) > class(20, 100));
        assert!(class(100, 100) > class(99, 100));
    }
}
