//! A remote store that may be slow, unreachable or overloaded, behind what protects its callers.
//!
//! A [`Pipeline`] is a [guarded](guarded::Guarded) store, and above it the [leases](leases::Leases), if
//! there are any. Read `guarded.rs` first: it has the path of a request to the store and back. Each of
//! the other files is one guard, or a part of one:
//!
//! | guard | files |
//! |---|---|
//! | deadline | `guarded`; over Redis, `redis/batch` |
//! | circuit breaker | `breaker/` |
//! | deny cache | `deny_cache/` |
//! | fallback | `fallback/` |
//! | probes and the replay | `recovery` |
//! | the number of instances | `instances`, `announcer` |
//! | leases, above the guarded store | `leases/` |

mod announcer;
mod breaker;
mod config;
mod deny_cache;
mod fallback;
mod fingerprint;
mod guarded;
mod instances;
mod leases;
mod pipeline;
mod recovery;

pub use self::{breaker::BreakerConfig, config::Resilience, pipeline::Protected};
pub(crate) use self::{
    guarded::{Answered, CheckProgress, Progress, WaitingCheck},
    pipeline::Pipeline,
};
