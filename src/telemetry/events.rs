//! Events of the target `plimsoll`, through `tracing`, and the reports that are an event and also a metric.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use tokio::time::Instant;

use super::{counts, macros::reports, misuse};
#[cfg(feature = "tracing")]
use crate::policy::EventSample;
use crate::{
    decision::{Outcome, Outcomes, Source, Verdict},
    error::Error,
    policy::Verdicts,
};

/// Reports a decision, in the counters of its policies and trials. If it denies the check, an event reports it, at most
/// once a second for each policy, and for its shadow and trial charges.
pub(crate) fn record_decision<'r>(
    outcomes: Outcomes<'_>,
    source: Source,
    route: impl FnOnce() -> Option<&'r str>,
) {
    if records_decisions() {
        report_denial(outcomes, source, route);
    }
    counts::decided(outcomes);
    compare_trials(outcomes);
}

/// Counts the verdict of each trial beside the verdict of the live charges, if there are both.
fn compare_trials(outcomes: Outcomes<'_>) {
    if outcomes.into_iter().any(|outcome| outcome.charge().is_trial()) {
        let has_live = outcomes.into_iter().any(|outcome| outcome.charge().is_live());
        let trials = outcomes.filter(|outcome| has_live && outcome.charge().is_trial());
        for trial in trials {
            let verdicts = Verdicts {
                live_allows: outcomes.are_admitted(),
                trial_allows: trial.verdict() == Verdict::Passed,
            };
            trial
                .charge()
                .policy()
                .counters()
                .count_trial(trial.charge().policy().name(), verdicts);
        }
    }
}

/// Reports that a call to a remote store has failed: as an event at most once a second for each kind of
/// error.
pub(crate) fn store_failed(error: &Error) {
    counts::store_failed(error.kind());
    report_failure(error);
}

/// Reports that a charge was not made because its request has no peer address.
pub(crate) fn charge_without_peer() {
    counts::charge_without_peer();
    misuse::peer_missing();
}

/// The event that lists the limits of a layer, which is emitted at most once. A clone can emit its event
/// again.
#[derive(Debug, Default)]
pub(crate) struct Announcement {
    is_made: AtomicBool,
}

impl Announcement {
    /// Emits the event with this text, unless it was emitted before or no subscriber records it.
    pub(crate) fn make(&self, text: impl FnOnce() -> String) {
        if records_announcements() && !self.is_made.swap(true, Relaxed) {
            announce(&text());
        }
    }
}

impl Clone for Announcement {
    fn clone(&self) -> Self {
        Self::default()
    }
}

reports! { feature "tracing";
    /// Returns whether a subscriber may record decisions. It reads one atomic.
    fn records_decisions() -> bool {
        tracing::level_filters::LevelFilter::current() >= tracing::Level::INFO
    }

    /// Returns whether a subscriber records [`announce`].
    fn records_announcements() -> bool {
        tracing::enabled!(target: "plimsoll", tracing::Level::INFO)
    }

    /// Reports the limits of a layer.
    fn announce(text: &str) {
        tracing::info!(target: "plimsoll", "{text}");
    }

    /// Reports a decision that denies a check, or that a shadow or a trial would have denied.
    fn report_denial<'r>(
        outcomes: Outcomes<'_>,
        source: Source,
        route: impl FnOnce() -> Option<&'r str>,
    ) {
        let outcome = if outcomes.are_admitted() {
            let mut others = outcomes.filter(|it| !it.charge().is_live());
            others.find(|it| it.verdict() != Verdict::Passed)
        } else {
            outcomes.binding()
        };
        if let Some(outcome) = outcome
            && tracing::enabled!(target: "plimsoll", tracing::Level::INFO)
            && let Some(suppressed) = due(&outcome)
        {
            denied(outcome, source, route(), suppressed);
        }
    }

    /// Reports that a breaker has opened or closed. `node` is the number of its node, if the store has
    /// several.
    pub(crate) fn breaker_changed(is_open: bool, node: Option<u32>) {
        const BREAKER_CHANGED: &str = "the store's breaker has changed";
        if is_open {
            tracing::warn!(target: "plimsoll", breaker = "open", node, "{BREAKER_CHANGED}");
        } else {
            tracing::info!(target: "plimsoll", breaker = "closed", node, "{BREAKER_CHANGED}");
        }
    }

    /// Reports that the clock of the store is `offset` seconds ahead of the clock of this machine, and gains `drift`
    /// microseconds in a second. Negative numbers mean behind, and lost. `leases` is false if this process does not lease.
    pub(crate) fn clocks_differ(offset: f64, drift: i64, leases: bool) {
        tracing::warn!(
            target: "plimsoll", offset_seconds = offset, drift_ppm = drift, leases,
            "the clocks of the store and of this machine differ"
        );
    }

    fn report_failure(error: &Error) {
        if let Some(suppressed) = failure_due(error) {
            tracing::warn!(
                target: "plimsoll",
                kind = error.kind().name(), place = error.place(), %error, suppressed,
                "the store has failed"
            );
        }
    }

    /// Reports that a check is not valid, at most once a second. Errors of the store are not reported
    /// here, because [`store_failed`] reports them.
    pub(crate) fn check_failed(error: &Error, admitted: bool) {
        if error.is_unavailable() {
            return;
        }
        if let Some(suppressed) = failure_due(error) {
            tracing::warn!(target: "plimsoll", %error, admitted, suppressed, "the check is not valid");
        }
    }
}

/// Returns the number of denials of the policy that were not reported before this one, if this one is to be
/// reported.
#[cfg(feature = "tracing")]
fn due(outcome: &Outcome<'_>) -> Option<u64> {
    outcome.charge().policy().counters().denials(outcome.charge().is_live()).due(Instant::now())
}

#[cfg(feature = "tracing")]
fn denied(outcome: Outcome<'_>, source: Source, route: Option<&str>, suppressed: u64) {
    let charge = outcome.charge();
    let standing = outcome.standing();
    // The fallback decides by the share of this process, so the used units count against the share.
    let share = (source == Source::Fallback).then_some(standing.limit);
    tracing::info!(
        target: "plimsoll",
        policy = charge.policy().name(), key = ?charge.key(), cost = charge.cost(),
        used = standing.limit.saturating_sub(standing.remaining), share,
        limit = share.map_or(standing.limit, |_| charge.quota().capacity()),
        source = source.name(),
        retry_after = standing.retry_after.map(tracing::field::debug), route,
        shadow = charge.is_shadow(), trial = charge.is_trial(), suppressed,
        "denied"
    );
}

/// Returns the number of errors of this kind that were not reported since the last event, if it is time for another
/// event.
#[cfg(feature = "tracing")]
fn failure_due(error: &Error) -> Option<u64> {
    static FAILURES: [EventSample; 16] = [const { EventSample::new() }; 16];

    FAILURES.get(error.kind() as usize)?.due(Instant::now())
}
