//! Stores of standings.
//!
//! A [`Store`] decides checks and keeps the units that keys have spent. [`MemoryStore`] keeps them
//! in this process, and [`RedisStore`] in Redis, shared by all instances. [`Resilience`] configures
//! the stages between a [`Limiter`](crate::Limiter) and a remote store: deadline, circuit breaker,
//! deny cache and fallback. [`Regions`] shares limits between regions, each with a store of its own.

mod answer;
mod memory;
mod node_id;
mod probe;
#[cfg(feature = "redis")]
mod redis;
mod regions;
mod resilience;
pub(crate) mod scheduling;
mod status;
#[expect(clippy::module_inception, reason = "the file of the type that the folder is named after")]
mod store;

#[doc(hidden)]
pub use self::node_id::NodeId;
#[cfg(feature = "redis")]
pub use self::redis::{RedisConfig, RedisStore};
pub(crate) use self::resilience::{Fallback, Pipeline};
pub use self::{
    answer::Answer,
    memory::{MemoryConfig, MemoryStats, MemoryStore},
    regions::{Regions, RegionsConfig},
    resilience::{BreakerConfig, Resilience},
    status::{BreakerStatus, Status},
    store::{Request, Store},
};
pub use crate::decision::{ChargeReply, Source, StoreReply, Verdict};
