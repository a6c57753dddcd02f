//! The stages between a limiter and a remote store that may be slow, unreachable or overloaded.
//!
//! [`Pipeline`] passes each request through the stages, so read `stages.rs` and `pipeline.rs` first.
//! Each of the other files is one stage, or a part of one:
//!
//! | stage | files |
//! |---|---|
//! | leases | `leases/` |
//! | deadline | `deadline` |
//! | circuit breaker | `breaker/` |
//! | deny cache | `deny_cache/` |
//! | fallback | `fallback`, `backlog`, `found_keys`, `recovery`, `replay` |

mod background_task;
mod backlog;
mod breaker;
mod config;
mod deadline;
mod deny_cache;
mod description;
mod fallback;
mod fingerprint;
mod found_keys;
mod leases;
mod moving_average;
mod owned_request;
mod pipeline;
mod recovery;
mod replay;
mod scheduling_delay;
mod stages;
mod store_call;

pub use self::{breaker::BreakerConfig, config::Resilience};
pub(crate) use self::{
    fallback::{Fallback, UNKNOWN_WAIT_MICROS},
    pipeline::Pipeline,
};
