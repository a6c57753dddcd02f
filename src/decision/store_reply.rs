//! The reply of a store to one request.

use smallvec::SmallVec;

use super::ChargeReply;
use crate::clock::Timestamp;

/// The reply of a [`Store`](crate::store::Store) to a [`Request`](crate::store::Request).
#[derive(Debug, Clone, Default)]
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
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
#[non_exhaustive]
pub enum Source {
    /// An embedded store, which counts in this process.
    #[default]
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::decision::Standing;

    #[test]
    fn a_reply_keeps_its_time_and_the_order_of_its_charges() {
        let time = Timestamp::from_micros(7);
        let replies = [3, 0, 5]
            .map(|units| ChargeReply { units, ..ChargeReply::peeked(0, Standing::full(10)) });
        let reply = StoreReply::new(time, Source::Local, replies);
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
}
