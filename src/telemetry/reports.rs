//! The reports that are an event and also a metric.

use super::{DenialLog, counts, events, misuse};
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

/// Reports that a charge was not made because its request has no peer address.
#[cold]
pub(crate) fn charge_without_peer() {
    counts::charge_without_peer();
    misuse::peer_missing();
}

/// Reports that a load of a lookup has failed. `error` is the error that the load returned, if any.
#[cfg(feature = "lookup")]
#[cold]
pub(crate) fn lookup_failed(kind: &'static str, error: Option<&dyn std::fmt::Display>) {
    counts::lookup_failed(kind);
    events::lookup_failed(kind, error);
}
