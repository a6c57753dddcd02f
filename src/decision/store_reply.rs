//! The reply of a store to one request.

use smallvec::SmallVec;

use super::ChargeReply;
use crate::clock::Timestamp;

/// The reply of a [`Store`](crate::store::Store) to a [`Request`](crate::store::Request).
#[derive(Debug, Clone)]
pub struct StoreReply {
    /// The store's time.
    pub time: Timestamp,
    /// The kind of store that decided.
    pub source: Source,
    /// A reply to each charge, or to each line of a receipt, in their order.
    pub charges: SmallVec<[ChargeReply; 1]>,
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
    /// The deny cache, with an earlier denial by the shared store that still holds.
    Cache,
}
