//! The log lines and the metrics of overrides. A line is written when a state begins, and when it ends.

use std::time::Duration;

use metrics::{Unit, describe_counter, describe_gauge};

const SINCE_REPLY: &str = "plimsoll_overrides_seconds_since_reply";
const LOSSES: &str = "plimsoll_overrides_losses_total";

/// The lost overrides that a line names.
const NAMED: usize = 20;

/// Describes the metrics, and begins the counters.
pub(super) fn describe() {
    describe_gauge!(
        SINCE_REPLY,
        Unit::Seconds,
        "The time since the Redis of the overrides answered."
    );
    let losses = "The times that Redis had lost overrides or their ends that this process knew.";
    describe_counter!(LOSSES, Unit::Count, losses);
    metrics::counter!(LOSSES).increment(0);
}

/// Sets the metric of the time since the store has answered.
pub(super) fn since_reply(time: Duration) {
    metrics::gauge!(SINCE_REPLY).set(time.as_secs_f64());
}

/// Reports that the store does not answer, and that it does again.
pub(super) fn store(before: Option<&str>, after: Option<&str>) {
    match (before, after) {
        (None, Some(error)) => tracing::warn!(
            target: "plimsoll",
            "the overrides stay as they are, and cannot be changed: {error}"
        ),
        (Some(_), None) => {
            tracing::info!(target: "plimsoll", "Redis answers: the overrides are followed again");
        }
        _ => {}
    }
}

/// Reports that an override is not applied, and that all are again.
pub(super) fn applied(before: Option<&str>, after: Option<&str>) {
    match after {
        Some(error) if before != after => {
            tracing::warn!(target: "plimsoll", "an override is not applied here: {error}");
        }
        None if before.is_some() => {
            tracing::info!(target: "plimsoll", "all overrides are applied again");
        }
        _ => {}
    }
}

/// Reports that the store had lost changes, and the overrides that are not in force any more.
pub(super) fn lost(named: impl ExactSizeIterator<Item = String>) {
    metrics::counter!(LOSSES).increment(1);
    let count = named.len();
    let named = named.take(NAMED).collect::<Vec<_>>().join(", ");
    tracing::error!(
        target: "plimsoll",
        "Redis had lost changes: compare the overrides with the wanted ones. No longer in force are {count}: {named}"
    );
}
