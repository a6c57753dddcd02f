//! The reply of a store to one request.

use smallvec::SmallVec;

use super::{Mark, Standing};
use crate::clock::Timestamp;

/// The reply of a [`Store`](crate::store::Store) to a [`Request`](crate::store::Request).
#[derive(Debug, Clone)]
pub struct StoreReply {
    /// The store's time.
    pub time: Timestamp,
    /// The kind of store that decided.
    pub source: Source,
    pub(crate) charges: SmallVec<[ChargeReply; 1]>,
}

impl StoreReply {
    /// Creates a reply, for implementations of [`Store`](crate::store::Store).
    ///
    /// `time` is the store's time, and `source` the kind of store that decided. `charges` are the
    /// replies to each charge, or to each line of a receipt, in their order.
    #[must_use]
    pub fn new(
        time: Timestamp,
        source: Source,
        charges: impl IntoIterator<Item = ChargeReply>,
    ) -> Self {
        Self { time, source, charges: charges.into_iter().collect() }
    }

    /// Returns the number of keys that a block, its lift or a reset has found.
    pub(crate) fn found_keys(&self) -> usize {
        self.charges.iter().filter(|reply| reply.units > 0).count()
    }

    /// Returns the reply to each charge, or to each line of a receipt, in their order.
    #[must_use]
    pub fn charges(&self) -> &[ChargeReply] {
        &self.charges
    }
}

/// The kind of store that decided.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Source {
    /// An embedded store, which counts in this process.
    Local,
    /// The fallback of this process, under its share of the limit, because the shared store could
    /// not answer.
    Fallback,
    /// The store that all instances share.
    Shared,
    /// This process, with units that it had [leased](crate::Quota::leased) from the shared store.
    Leased,
    /// The guaranteed share of this region alone, because the home store of
    /// [regions](https://docs.rs/plimsoll-regions) did not answer in time.
    Region,
    /// The deny cache, with an earlier denial by the shared store that still holds.
    Cache,
}

impl Source {
    /// Returns the name of the source in events, such as `fallback`.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Local => "local",
            Self::Fallback => "fallback",
            Self::Shared => "shared",
            Self::Leased => "leased",
            Self::Region => "region",
            Self::Cache => "cache",
        }
    }
}

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
    fn a_reply_keeps_its_time_and_the_order_of_its_charges() {
        let time = Timestamp::from_micros(7);
        let reply = StoreReply::new(time, Source::Local, [3, 0, 5].map(|units| reply(units, 1)));
        assert_eq!((reply.time, reply.source, reply.found_keys()), (time, Source::Local, 2));
        let units: Vec<_> = reply.charges().iter().map(|charge| charge.units).collect();
        assert_eq!(units, [3, 0, 5]);
    }

    #[test]
    fn each_source_has_a_name() {
        let names = [
            (Source::Local, "local"),
            (Source::Fallback, "fallback"),
            (Source::Shared, "shared"),
            (Source::Leased, "leased"),
            (Source::Region, "region"),
            (Source::Cache, "cache"),
        ];
        for (source, name) in names {
            assert_eq!(source.name(), name);
        }
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
