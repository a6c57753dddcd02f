//! Metrics, through the `metrics` facade.
//!
//! | name | kind | meaning |
//! |---|---|---|
//! | `plimsoll_decisions_total` | counter | by `policy` and `outcome`: `allowed`, `denied`, `not_charged` (another policy of the check refused), and for shadows and trials `would_allow`, `would_deny` |
//! | `plimsoll_trials_total` | counter | by `policy`, `live` and `trial`, each `allowed` or `denied`: checks with a charge on trial |
//! | `plimsoll_store_seconds` | histogram | response times of remote stores |
//! | `plimsoll_scheduling_delay_seconds` | histogram | how long a task waits for processor time |
//! | `plimsoll_store_errors_total` | counter | by `kind`: calls to remote stores that failed, including probes |
//! | `plimsoll_open_breakers` | gauge | breakers that are open |
//! | `plimsoll_clock_offset_seconds` | gauge | time by which the clock of the store is ahead of the clock of this machine |
//! | `plimsoll_clock_drift_ppm` | gauge | microseconds that the clock of the store certainly gains in a second on the clock of this process |
//! | `plimsoll_instances` | gauge | instances that share the store, as this one has counted them |
//! | `plimsoll_fallback_total` | counter | checks that this process decided by itself, and charges beyond the limit that it made |
//! | `plimsoll_deadline_missed_total` | counter | calls that the store did not answer by the deadline |
//! | `plimsoll_deny_cache_hits_total` | counter | checks that the deny cache denied |
//! | `plimsoll_leased_checks_total` | counter | checks that this process decided with leased units |
//! | `plimsoll_lease_renewals_total` | counter | by `result`: requests for leased units: `granted`, `denied`, `lost` |
//! | `plimsoll_leased_units_total` | counter | units that this process has leased |
//! | `plimsoll_lease_refunds_total` | counter | leased units that were refunded to the store |
//! | `plimsoll_missing_peers_total` | counter | charges that were not made because the request has no peer address |
//! | `plimsoll_undo_failed_total` | counter | denied checks over several slots of a cluster, or over the share and the pool of a region, of which a part stays charged |

use std::time::Duration;

use super::macros::reports;
use crate::{decision::Outcomes, error::ErrorKind};

reports! { feature "metrics";
    /// Gives the recorder the unit and the description of each metric. A metric that is emitted must be
    /// here and in `docs/operations.md`.
    pub(crate) fn describe() {
        use metrics::{Unit, describe_counter, describe_gauge, describe_histogram};

        let counters = [
            ("plimsoll_decisions_total", "Decisions, by policy and outcome."),
            (
                "plimsoll_trials_total",
                "Checks with a charge on trial, by its policy and both verdicts.",
            ),
            ("plimsoll_store_errors_total", "Calls to remote stores that failed, by kind of error."),
            (
                "plimsoll_fallback_total",
                "Checks that the fallback decided, and charges beyond the limit that it made.",
            ),
            ("plimsoll_deadline_missed_total", "Calls that the store did not answer by the deadline."),
            ("plimsoll_deny_cache_hits_total", "Checks that the deny cache denied."),
            ("plimsoll_leased_checks_total", "Checks that were decided with leased units."),
            ("plimsoll_lease_renewals_total", "Requests for leased units, by result."),
            ("plimsoll_leased_units_total", "Units that were leased."),
            ("plimsoll_lease_refunds_total", "Leased units that were refunded to the store."),
            (
                "plimsoll_missing_peers_total",
                "Charges that were not made because the request has no peer address.",
            ),
            (
                "plimsoll_undo_failed_total",
                "Denied checks over several slots or parts of a region of which a part stays charged.",
            ),
        ];
        for (name, description) in counters {
            describe_counter!(name, Unit::Count, description);
        }
        describe_histogram!(
            "plimsoll_store_seconds",
            Unit::Seconds,
            "Response times of remote stores."
        );
        describe_histogram!(
            "plimsoll_scheduling_delay_seconds",
            Unit::Seconds,
            "How long a task waits for processor time."
        );
        describe_gauge!("plimsoll_open_breakers", Unit::Count, "Breakers that are open.");
        describe_gauge!(
            "plimsoll_clock_offset_seconds",
            Unit::Seconds,
            "Time by which the clock of the store is ahead of the clock of this machine."
        );
        describe_gauge!(
            "plimsoll_clock_drift_ppm",
            Unit::Count,
            "Microseconds that the clock of the store gains in a second on the clock of this process."
        );
        describe_gauge!("plimsoll_instances", Unit::Count, "Instances that share the store.");
    }

    pub(super) fn decided(outcomes: Outcomes<'_>) {
        metrics::with_recorder(|recorder| {
            for outcome in outcomes {
                let counters = outcome.charge().policy().counters();
                counters.register(recorder, outcome.number()).increment(1);
            }
        });
    }

    /// Records the response time of a remote store.
    pub(crate) fn store_answered(duration: Duration) {
        metrics::histogram!("plimsoll_store_seconds").record(duration.as_secs_f64());
    }

    /// Records how long a task has waited for processor time after its timer.
    pub(crate) fn scheduling_delayed(delay: Duration) {
        metrics::histogram!("plimsoll_scheduling_delay_seconds").record(delay.as_secs_f64());
    }

    /// Registers the gauge of the breakers without a change of its value.
    pub(crate) fn breaker_made() {
        metrics::gauge!("plimsoll_open_breakers").increment(0.0);
    }

    /// Adds to the number of breakers that are open.
    pub(crate) fn breakers_opened(opened: i8) {
        metrics::gauge!("plimsoll_open_breakers").increment(f64::from(opened));
    }

    /// Sets the time in seconds by which the clock of the store is ahead, and its drift in parts per million.
    pub(crate) fn clocks_compared(offset: f64, drift: i64) {
        metrics::gauge!("plimsoll_clock_offset_seconds").set(offset);
        metrics::gauge!("plimsoll_clock_drift_ppm").set(drift as f64);
    }

    /// Sets the number of instances that share the store.
    pub(crate) fn instances_counted(instances: u32) {
        metrics::gauge!("plimsoll_instances").set(f64::from(instances));
    }

    /// Counts a call that the store did not answer by the deadline.
    pub(crate) fn deadline_missed() {
        metrics::counter!("plimsoll_deadline_missed_total").increment(1);
    }

    /// Counts a call to the store that failed.
    pub(super) fn store_failed(kind: ErrorKind) {
        metrics::counter!("plimsoll_store_errors_total", "kind" => kind.name()).increment(1);
    }

    /// Counts a check that the fallback decided.
    pub(crate) fn fell_back() {
        metrics::counter!("plimsoll_fallback_total").increment(1);
    }

    /// Counts a denied check over several slots, of which a part stays charged.
    #[cfg(feature = "redis")]
    pub(crate) fn undo_failed() {
        metrics::counter!("plimsoll_undo_failed_total").increment(1);
    }

    /// Counts a check that the deny cache denied.
    pub(crate) fn denied_from_cache() {
        metrics::counter!("plimsoll_deny_cache_hits_total").increment(1);
    }

    /// Counts a check that was decided with leased units.
    pub(crate) fn paid_from_stock() {
        metrics::counter!("plimsoll_leased_checks_total").increment(1);
    }

    /// Counts a renewal, and the units that it leased.
    pub(crate) fn lease_granted(units: u64) {
        metrics::counter!("plimsoll_lease_renewals_total", "result" => "granted").increment(1);
        metrics::counter!("plimsoll_leased_units_total").increment(units);
    }

    /// Counts a renewal that the store has denied.
    pub(crate) fn lease_denied() {
        metrics::counter!("plimsoll_lease_renewals_total", "result" => "denied").increment(1);
    }

    /// Counts a renewal without an answer.
    pub(crate) fn lease_lost() {
        metrics::counter!("plimsoll_lease_renewals_total", "result" => "lost").increment(1);
    }

    /// Counts leased units that were refunded to the store.
    pub(crate) fn leases_refunded(units: u64) {
        metrics::counter!("plimsoll_lease_refunds_total").increment(units);
    }

    /// Counts a charge that was not made because the request has no peer address.
    pub(super) fn charge_without_peer() {
        metrics::counter!("plimsoll_missing_peers_total").increment(1);
    }
}
