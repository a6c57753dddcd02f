//! The answer of a store to one request.

use smallvec::SmallVec;

use super::ChargeReply;
use crate::clock::Timestamp;

/// What a [`Store`](crate::store::Store) answers: a line for each line of the request.
#[derive(Debug, Clone)]
pub struct StoreReply {
    /// The store's time.
    pub time: Timestamp,
    /// Who answered.
    pub source: Source,
    /// A line for each charge, in their order.
    pub charges: SmallVec<[ChargeReply; 1]>,
}

/// Who decided.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Source {
    /// The standings of this process: an embedded store.
    Local,
    /// The standings of this process, under its share of the limit, because the shared store could
    /// not answer.
    Fallback,
    /// The standings that all instances share.
    Shared,
    /// An answer of a moment ago that still holds.
    Cache,
}
