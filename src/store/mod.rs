//! Where standings live.
//!
//! A [`Store`] decides checks. [`MemoryStore`] is embedded; what a store needs beyond that, such as
//! a deadline or a fallback, is a store around a store.

mod answer;
mod memory;
#[cfg(feature = "redis")]
mod redis;
mod resilience;
mod status;
#[expect(clippy::module_inception, reason = "the file of the type that the folder is named after")]
mod store;

#[cfg(feature = "redis")]
pub use self::redis::{RedisConfig, RedisStore};
pub(crate) use self::resilience::Pipeline;
pub use self::{
    answer::Answer,
    memory::{MemoryConfig, MemoryStats, MemoryStore},
    resilience::{BreakerConfig, Resilience},
    status::{BreakerStatus, Status},
    store::{Request, Store},
};
pub use crate::decision::{ChargeReply, Source, StoreReply, Verdict};
