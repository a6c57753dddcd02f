//! Events and metrics for operators.
//!
//! This is the only module that uses the crates `tracing` and `metrics`. For each of these crates, there
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
#[cfg(feature = "serde")]
mod settings;

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
    misuse::{
        FirstRequests, RouteWatch, charged_twice, every_key_is_new, forwarded_ignored, peer_missing,
    },
};
#[cfg(feature = "lookup")]
pub(crate) use self::{
    counts::{looked_up, row_loaded},
    misuse::lookup_missing,
};
use crate::{decision::Decision, error::Error};

/// Returns whether decisions are reported. With the feature `metrics`, the result is always true,
/// because the facade does not say whether a recorder is installed.
#[inline]
pub(crate) fn reports_decisions() -> bool {
    counts::ENABLED || events::enabled()
}

/// Reports a decision, as an event if it denies the check and `log` admits it, and in the counters
/// of its policies.
#[inline]
pub(crate) fn record_decision<'r>(
    decision: &Decision<'_>,
    log: &DenialLog,
    route: impl FnOnce() -> Option<&'r str>,
) {
    events::decided(decision, log, route);
    counts::decided(decision);
}

/// Reports that a call to a remote store has failed.
#[cold]
pub(crate) fn store_failed(error: &Error) {
    counts::store_failed(error.kind());
    events::store_failed(error);
}

/// Reports that a load of a lookup has failed. `error` is the error that the load returned, if any.
#[cfg(feature = "lookup")]
#[cold]
pub(crate) fn lookup_failed(kind: &'static str, error: Option<&dyn std::fmt::Display>) {
    counts::lookup_failed(kind);
    events::lookup_failed(kind, error);
}
