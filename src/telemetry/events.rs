//! Events of the target `plimsoll`, through `tracing`, and the reports that are an event and also a metric.

use std::{
    mem,
    sync::atomic::{AtomicBool, Ordering::Relaxed},
    time::Duration,
};

use tokio::time::Instant;

use super::{counts, macros::reports, misuse};
use crate::{
    decision::{Decision, Outcome, OutcomeKind, Source, Verdict},
    error::{Error, ErrorKind},
    policy::Verdicts,
    sync::Mutex,
};

/// The denials for which a [`Limiter`](crate::Limiter) emits an event (feature `tracing`).
/// [`Limiter::set_denial_events`](crate::Limiter::set_denial_events) chooses them. The metric
/// `plimsoll_decisions_total` (feature `metrics`) always counts all denials.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
#[non_exhaustive]
pub enum DenialEvents {
    /// At most one event a second for each policy, and one for its shadow and trial charges, however many keys
    /// are denied. The field `suppressed` is the number of denials since the last event.
    #[default]
    OncePerSecond,
    /// An event for each denial. An attack then writes a line for each of its requests.
    All,
}

/// The choice of the denials that a limiter reports.
#[derive(Debug, Default)]
pub(crate) struct DenialLog {
    reports_all: AtomicBool,
}

impl DenialLog {
    pub(crate) fn set_mode(&self, events: DenialEvents) {
        self.reports_all.store(events == DenialEvents::All, Relaxed);
    }

    pub(crate) fn mode(&self) -> DenialEvents {
        let reports_all = self.reports_all.load(Relaxed);
        if reports_all { DenialEvents::All } else { DenialEvents::OncePerSecond }
    }

    /// Returns the number of denials of the policy that were not reported before this one, if this one is to be
    /// reported.
    fn due(&self, outcome: &Outcome<'_>) -> Option<u64> {
        if self.mode() == DenialEvents::All {
            return Some(0);
        }
        let counters = outcome.policy().counters();
        counters.denials(outcome.charge().is_live()).due(Instant::now())
    }
}

/// Reports a decision, as an event if it denies the check and `log` admits it, and in the counters
/// of its policies and trials.
#[inline]
pub(crate) fn record_decision<'r>(
    decision: &Decision<'_>,
    log: &DenialLog,
    route: impl FnOnce() -> Option<&'r str>,
) {
    if records_decisions() {
        report_denial(decision, log, route);
    }
    counts::decided(decision);
    compare_trials(decision);
}

/// Counts the verdict of each trial beside that of the live charges, if there are both.
#[inline]
fn compare_trials(decision: &Decision<'_>) {
    let outcomes = decision.outcomes();
    if outcomes.len() > 1 && outcomes.iter().any(|outcome| outcome.charge().is_trial()) {
        let has_live = outcomes.iter().any(|outcome| outcome.charge().is_live());
        let trials = outcomes.iter().filter(|outcome| has_live && outcome.charge().is_trial());
        for trial in trials {
            let verdicts = Verdicts {
                live_allows: decision.is_allowed(),
                trial_allows: trial.verdict() == Verdict::Passed,
            };
            trial.policy().counters().count_trial(trial.policy().name(), verdicts);
        }
    }
}

/// Reports that a call to a remote store has failed: as an event at most once a second for each kind of
/// error and place.
#[cold]
pub(crate) fn store_failed(error: &Error) {
    counts::store_failed(error.kind());
    report_failure(error);
}

/// Reports that a charge was not made because its request has no peer address.
#[cold]
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
    #[inline(never)]
    fn report_denial<'r>(
        decision: &Decision<'_>,
        log: &DenialLog,
        route: impl FnOnce() -> Option<&'r str>,
    ) {
        let refused = |outcome: &Outcome<'_>| outcome.kind() == OutcomeKind::WouldDeny;
        let outcome = match decision {
            Decision::Denied(denied) => denied.binding(),
            Decision::Allowed(allowed) => allowed.outcomes().iter().find(refused),
        };
        if let Some(outcome) = outcome
            && tracing::enabled!(target: "plimsoll", tracing::Level::INFO)
            && let Some(suppressed) = log.due(&outcome)
        {
            denied(outcome, decision, route(), suppressed);
        }
    }

    /// Reports a change of a breaker's state. Opening is a warning, unless it follows a failed probe.
    /// `node` is the number of the breaker's node, if the store has several.
    pub(crate) fn breaker_changed(before: &str, after: &str, node: Option<u32>) {
        const BREAKER_CHANGED: &str = "the store's breaker has changed";
        match (before, after) {
            ("half-open", "open") | (_, "half-open") => {
                tracing::debug!(target: "plimsoll", breaker = after, node, "{BREAKER_CHANGED}");
            }
            (_, "open") => {
                tracing::warn!(target: "plimsoll", breaker = after, node, "{BREAKER_CHANGED}");
            }
            _ => tracing::info!(target: "plimsoll", breaker = after, node, "{BREAKER_CHANGED}"),
        }
    }

    fn report_failure(error: &Error) {
        if let Some(suppressed) = FAILURES.due(error.kind(), error.place()) {
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
        if let Some(suppressed) = FAILURES.due(error.kind(), "check") {
            tracing::warn!(target: "plimsoll", %error, admitted, suppressed, "the check is not valid");
        }
    }
}

#[cfg(feature = "tracing")]
fn denied(outcome: Outcome<'_>, decision: &Decision<'_>, route: Option<&str>, suppressed: u64) {
    let (standing, source) = (outcome.standing(), decision.source());
    let (policy, cost, key) =
        (outcome.policy().name(), outcome.charge().cost(), outcome.charge().key());
    // The fallback decides by the share of this process, so there the used units are those of the share.
    let share = (source == Source::Fallback).then(|| standing.limit());
    let limit = share.map_or(standing.limit(), |_| outcome.quota().capacity());
    let used = standing.limit().saturating_sub(standing.remaining());
    let (source, charge) = (source.name(), outcome.charge());
    let (shadow, trial) = (charge.is_shadow(), charge.is_trial());
    let retry_after = standing.retry_after().map(tracing::field::debug);
    tracing::info!(
        target: "plimsoll",
        policy, ?key, cost, used, share, limit, source, retry_after, route, shadow, trial, suppressed,
        "denied"
    );
}

/// The shortest time between two events for one kind of error and place.
const FAILURE_INTERVAL: Duration = Duration::from_secs(1);

/// The failures of this process.
static FAILURES: FailureLog = FailureLog(Mutex::new(Vec::new()));

/// The maximum number of kinds and places that are distinguished. Above this number, further places are
/// reported as `other`. Redis recommends clusters of at most 1,000 nodes, which rarely all fail.
const MAX_PLACES: usize = 256;

/// The last event for each kind of error and place.
struct FailureLog(Mutex<Vec<LastEvent>>);

struct LastEvent {
    kind: ErrorKind,
    place: Box<str>,
    time: Instant,
    /// The number of errors since that event.
    suppressed: u64,
}

impl FailureLog {
    /// Returns the number of errors of this kind and place that were not reported since the last
    /// event, if it is time for another event.
    fn due(&self, kind: ErrorKind, place: &str) -> Option<u64> {
        let now = Instant::now();
        let mut log = self.0.lock();
        let find = |log: &[LastEvent], place: &str| {
            log.iter().position(|last| last.kind == kind && *last.place == *place)
        };
        let known = find(&log, place);
        let place = if known.is_some() || log.len() < MAX_PLACES { place } else { "other" };
        let Some(index) = known.or_else(|| find(&log, place)) else {
            log.push(LastEvent { kind, place: place.into(), time: now, suppressed: 0 });
            return Some(0);
        };
        let last = &mut log[index];
        if now.saturating_duration_since(last.time) < FAILURE_INTERVAL {
            last.suppressed += 1;
            return None;
        }
        last.time = now;
        Some(mem::take(&mut last.suppressed))
    }
}
