//! The reply to one charge, and the verdict on it.

use super::standing::{Mark, Standing};

/// The reply of a [`Store`](crate::store::Store) to one [`Charge`](crate::Charge).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ChargeReply {
    /// The verdict on the charge by itself.
    pub verdict: Verdict,
    /// The number of units spent or refunded. The reply to a [`Block`](crate::store::Request::Block) or a
    /// [`Reset`](crate::store::Request::Reset) has 1 if the key had spent units or was blocked, and the
    /// reply to an [`Unblock`](crate::store::Request::Unblock) has 1 if it was blocked. Otherwise they
    /// have 0.
    pub units: u64,
    /// The standing of the key after the request.
    pub standing: Standing,
    /// The record with which the store can refund the units.
    pub mark: Mark,
}

impl ChargeReply {
    /// Creates the reply to a charge of `cost` units that were not spent. `standing` is the standing of its key.
    pub(crate) fn peeked(cost: u64, standing: Standing) -> Self {
        let verdict = if cost <= standing.remaining {
            Verdict::Passed
        } else if cost > standing.limit {
            Verdict::OverCapacity
        } else {
            Verdict::Refused
        };
        Self { verdict, units: 0, standing, mark: Mark::default() }
    }

    /// Returns the reply to the same charge in a check that spends nothing.
    #[cfg(any(feature = "redis", test))]
    pub(crate) fn unspent(mut self) -> Self {
        let Standing { limit, remaining, .. } = &mut self.standing;
        *remaining = remaining.saturating_add(self.units).min(*limit);
        Self { units: 0, mark: Mark::default(), ..self }
    }
}

/// The verdict on one charge by itself, independent of the other charges of its check.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Verdict {
    /// Enough units are free.
    Passed,
    /// Too few units are free at the moment.
    Refused,
    /// The cost exceeds the [capacity](crate::Quota::capacity), so the charge can never pass.
    OverCapacity,
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn reply(units: u64, remaining: u64) -> ChargeReply {
        let reset_after = Duration::from_secs(units);
        let standing = Standing { remaining, reset_after, ..Standing::full(10) };
        ChargeReply { verdict: Verdict::Passed, units, standing, mark: Mark([units, 2, 3]) }
    }

    #[test]
    fn a_check_that_spends_nothing_leaves_its_units() {
        let unspent = reply(3, 4).unspent();
        assert_eq!((unspent.units, unspent.mark), (0, Mark::default()));
        let standing = unspent.standing;
        assert_eq!((standing.limit, standing.remaining), (10, 7));
        assert_eq!(standing.reset_after, Duration::from_secs(3));
        assert_eq!(reply(9, 4).unspent().standing.remaining, 10);
    }
}
