//! The log lines and the metrics of overrides. A line is written when a state begins, and when it ends.

use std::time::Duration;

use metrics::{Unit, describe_counter, describe_gauge};

const UNHEARD: &str = "plimsoll_overrides_unheard_seconds";
const RESTORES: &str = "plimsoll_overrides_restores_total";
const UNDECIDED: &str = "plimsoll_overrides_undecided_total";

/// Describes the metrics, and begins the counters.
pub(super) fn describe() {
    describe_gauge!(UNHEARD, Unit::Seconds, "The time since the Redis of the overrides answered.");
    let restores = "The times that this process put back overrides that Redis had lost.";
    describe_counter!(RESTORES, Unit::Count, restores);
    let undecided = "Overrides that may be lost, or in force although they were removed.";
    describe_counter!(UNDECIDED, Unit::Count, undecided);
    metrics::counter!(RESTORES).increment(0);
    metrics::counter!(UNDECIDED).increment(0);
}

/// Sets the metric of the time since the store has answered.
pub(super) fn unheard(time: Duration) {
    metrics::gauge!(UNHEARD).set(time.as_secs_f64());
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

/// Reports that this process has put back overrides.
pub(super) fn restored(count: u64) {
    metrics::counter!(RESTORES).increment(1);
    tracing::warn!(target: "plimsoll", "Redis had lost overrides, and has them again: {count}");
}

/// Reports overrides about which this process could not decide.
pub(super) fn undecided(count: u64) {
    metrics::counter!(UNDECIDED).increment(count);
    tracing::error!(
        target: "plimsoll",
        "Redis had lost changes. Overrides that may be lost, or in force although they were removed: {count}"
    );
}
