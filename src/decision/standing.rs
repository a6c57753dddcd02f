//! The report of an algorithm on a key: its standing under one policy, and the mark of a charge.

use std::time::Duration;

/// The standing of a key under one policy: the units that are left, and the waits until more come
/// back.
///
/// It describes the time of the decision, after the units of the check have been spent. All waits
/// assume that no other check spends units meanwhile. The stores of this crate return whole microseconds.
/// Headers show 285 years at most.
///
/// ```
/// use std::time::Duration;
/// use plimsoll::{
///     Algorithm, Limiter, MemoryStore, Policy, Quota, clock::ManualClock, memory::MemoryConfig,
/// };
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), plimsoll::Error> {
/// let clock = ManualClock::at(1_700_000_000_000_000);
/// let limiter = Limiter::new(MemoryStore::new(MemoryConfig::default().clock(clock)));
/// let bucket = Algorithm::TokenBucket { burst: 5 };
/// let policy = Policy::new("search", Quota::per_second(1).with_algorithm(bucket)?)?;
///
/// let decision = limiter.check(policy.charge("alice", 3)).await?;
/// let standing = decision.outcomes().next().expect("one charge").standing();
/// assert_eq!((standing.limit, standing.remaining), (5, 2));
/// assert_eq!(standing.next_after, Duration::from_secs(1)); // 1 more unit
/// assert_eq!(standing.reset_after, Duration::from_secs(3)); // all 5 units
/// assert_eq!(standing.retry_after, None); // the charge has passed
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Standing {
    /// The most units that can ever remain: the limit, or the burst of a token bucket.
    pub limit: u64,
    /// The number of units that can be spent now.
    pub remaining: u64,
    /// The wait until [`remaining`](Self::remaining) next grows. It is zero if nothing is spent.
    pub next_after: Duration,
    /// The wait until all units have come back. It is zero if nothing is spent.
    pub reset_after: Duration,
    /// The shortest wait after which the charge passes if no other units are charged meanwhile.
    /// The stores of this crate compute it exactly: after one microsecond less, the charge is still
    /// refused. There are two exceptions:
    ///
    /// - With [leases](crate::guide::leases), [regions](https://docs.rs/plimsoll-regions) or a cached denial, less
    ///   may also suffice.
    /// - If the real wait is not known, it is estimated as 1 s or longer. This happens in the
    ///   [fallback](crate::guide::resilience), for a cost above the share of this instance, and in
    ///   [regions](https://docs.rs/plimsoll-regions), if no part has replied with a wait.
    ///
    /// It is `None` if the charge has passed, if it can never pass because its cost exceeds the
    /// [`limit`](Self::limit), or if a store refuses it without a wait. The deny cache does so if another key of
    /// the check may have to [wait longer](crate::guide::resilience#the-deny-cache).
    pub retry_after: Option<Duration>,
}

impl Standing {
    /// Returns the standing of a key that has spent nothing.
    pub(crate) const fn full(limit: u64) -> Self {
        let none = Duration::ZERO;
        Self { limit, remaining: limit, next_after: none, reset_after: none, retry_after: None }
    }
}

/// The record of one [`Charge`](crate::Charge), with which a store
/// [refunds](crate::store::Request::Refund) the units that the charge still holds, and no others.
///
/// It has three numbers. Only the [`Store`](crate::store::Store) that creates them interprets them.
///
/// ```
/// use plimsoll::store::Mark;
///
/// let window_number = 28_333_333;
/// let mark = Mark([window_number, 0, 0]);
/// assert_eq!(mark.0[0], window_number);
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Mark(pub [u64; 3]);

impl Mark {
    /// Returns the highest bit of the third number. A store that consists of two stores sets it in the marks of
    /// one of them.
    pub(crate) fn highest_bit(self) -> bool {
        self.0[2] >> 63 == 1
    }

    /// Returns the mark of the first units of a charge, without the last `units` of them. The second
    /// number of this mark is the debt of a token bucket after the charge. Debts are paid in their
    /// order, so the mark shows how much of them is paid before the first units.
    pub(crate) const fn before(self, units: u64) -> Self {
        Self([self.0[0], self.0[1].saturating_sub(units), self.0[2]])
    }

    /// Returns the mark of the same charge to a token bucket that has a debt of `debt` units after it.
    pub(crate) const fn with_debt(self, debt: u64) -> Self {
        Self([self.0[0], debt, self.0[2]])
    }

    /// Returns whether this mark belongs to a part of a charge of `units` units with the mark `whole`.
    pub(crate) const fn is_within(self, whole: Self, units: u64) -> bool {
        self.0[0] == whole.0[0]
            && self.0[2] == whole.0[2]
            && self.0[1] <= whole.0[1]
            && self.0[1] > whole.0[1].saturating_sub(units)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_highest_bit_of_a_mark_belongs_to_the_third_number() {
        let marks = [(u64::MAX, u64::MAX >> 1, false), (0, 1 << 63, true), (0, u64::MAX, true)];
        for (others, third, expected) in marks {
            assert_eq!(Mark([others, others, third]).highest_bit(), expected);
        }
    }
}
