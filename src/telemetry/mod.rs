//! Events and metrics for operators.
//!
//! This is the only module that uses the crates `tracing` and `metrics`, except for the counters of a
//! policy, which start at 0 with the policy or its layer. For each of these crates, there
//! is a module with the functions below, and a module of empty functions with the same names for builds
//! without the feature.

mod announcement;
#[cfg(feature = "metrics")]
mod counts;
#[cfg(not(feature = "metrics"))]
#[path = "no_counts.rs"]
mod counts;
mod denial_events;
#[cfg(feature = "tracing")]
mod denial_log;
#[cfg(not(feature = "tracing"))]
#[path = "no_denial_log.rs"]
mod denial_log;
#[cfg(feature = "tracing")]
mod events;
#[cfg(not(feature = "tracing"))]
#[path = "no_events.rs"]
mod events;
#[cfg(feature = "tracing")]
mod misuse;
#[cfg(not(feature = "tracing"))]
#[path = "no_misuse.rs"]
mod misuse;
mod reports;

pub use self::denial_events::DenialEvents;
pub(crate) use self::{
    announcement::Announcement,
    counts::{
        breaker_made, breakers_counted, deadline_missed, denied_from_cache, describe, fell_back,
        lease_denied, lease_granted, lease_lost, leases_refunded, paid_from_stock,
        scheduling_delayed, store_answered, undo_failed,
    },
    denial_log::DenialLog,
    events::{breaker_changed, check_failed},
    misuse::{FirstRequests, RouteWatch, charged_twice, every_key_is_new, forwarded_ignored},
    reports::{charge_without_peer, record_decision, reports_decisions, store_failed},
};
#[cfg(feature = "lookup")]
pub(crate) use self::{
    counts::{looked_up, row_loaded},
    misuse::{lookup_missing, peer_missing},
    reports::lookup_failed,
};
