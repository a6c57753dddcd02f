//! Events and metrics for operators.
//!
//! This is the only module that uses the crates `tracing` and `metrics`, except for the counters of a
//! policy, which start at 0 with the policy or its layer. The functions of the macro `reports` do nothing
//! in builds without the feature of their crate.

mod counts;
#[cfg_attr(not(feature = "tracing"), allow(unused, reason = "no event needs it"))]
mod events;
mod macros;
mod misuse;

#[cfg(feature = "redis")]
pub(crate) use self::counts::undo_failed;
pub(crate) use self::{
    counts::{
        breaker_made, breakers_opened, clocks_compared, deadline_missed, denied_from_cache,
        describe, fell_back, instances_counted, lease_denied, lease_granted, lease_lost,
        leases_refunded, paid_from_stock, scheduling_delayed, store_answered,
    },
    events::{
        Announcement, breaker_changed, charge_without_peer, check_failed, clocks_differ,
        record_decision, store_failed,
    },
    misuse::{FirstRequests, WatchedRoute, charged_twice, forwarded_ignored},
};
