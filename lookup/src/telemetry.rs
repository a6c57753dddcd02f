//! Metrics of lookups, and events of loads that fail.

/// Describes the metric.
#[cfg(feature = "metrics")]
pub(crate) fn describe() {
    metrics::describe_counter!("plimsoll_lookups_total", "Lookups of rows, by result.");
}

#[cfg(not(feature = "metrics"))]
pub(crate) fn describe() {}

/// Counts the lookup of a request by its result.
#[cfg(feature = "metrics")]
pub(crate) fn looked_up(result: &'static str) {
    metrics::counter!("plimsoll_lookups_total", "result" => result).increment(1);
}

#[cfg(not(feature = "metrics"))]
pub(crate) fn looked_up(_: &'static str) {}

/// Reports a load that has failed, at most once a second.
#[cfg(feature = "tracing")]
pub(crate) fn load_failed(error: &dyn std::fmt::Display) {
    use std::sync::{Mutex, PoisonError};
    use std::time::Duration;

    use tokio::time::Instant;

    static LAST: Mutex<Option<Instant>> = Mutex::new(None);
    let now = Instant::now();
    {
        let mut last = LAST.lock().unwrap_or_else(PoisonError::into_inner);
        if last.is_some_and(|last| now.saturating_duration_since(last) < Duration::from_secs(1)) {
            return;
        }
        *last = Some(now);
    }
    tracing::warn!(target: "plimsoll", %error, "a lookup has failed");
}

#[cfg(not(feature = "tracing"))]
pub(crate) fn load_failed(_: &dyn std::fmt::Display) {}
