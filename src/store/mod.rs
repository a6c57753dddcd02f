//! The interface of stores.
//!
//! A [`Store`] decides checks and keeps the units that keys have spent. The crate has two:
//! [`MemoryStore`](crate::MemoryStore) keeps them in this process, [`RedisStore`](crate::RedisStore) in
//! Redis, shared by all instances. [plimsoll-regions](https://docs.rs/plimsoll-regions) has one that shares limits
//! between regions, each with a store of its own. A store of your own implements [`Store`].

mod answer;
pub(crate) mod decide;
mod status;
mod step;
#[expect(clippy::module_inception, reason = "the file of the type that the folder is named after")]
mod store;

pub(crate) use self::answer::ReplyFuture;
#[cfg(feature = "redis")]
pub(crate) use self::store::probe_charge;
pub use self::{
    answer::Answer,
    status::{BreakerStatus, MemoryStats, Status},
    step::{StateChange, StateId, Step},
    store::{Closing, NodeId, Request, Store, Traits},
};
pub use crate::decision::{
    charge_reply::{ChargeReply, Verdict},
    standing::Mark,
    store_reply::{Source, StoreReply},
};
