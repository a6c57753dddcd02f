//! Events of the target `plimsoll`, through `tracing`.

use std::{
    mem,
    sync::{Mutex, PoisonError},
    time::Duration,
};

use tokio::time::Instant;
use tracing::level_filters::LevelFilter;

use super::denial_log::{DenialLog, Suppressed};
use crate::{
    decision::{Decision, Outcome, OutcomeKind, Source},
    error::{Error, ErrorKind},
};

/// The shortest time between two events for one kind of error and place.
const FAILURE_INTERVAL: Duration = Duration::from_secs(1);

/// Returns whether a subscriber may record decisions. It reads one atomic.
#[inline]
pub(super) fn enabled() -> bool {
    LevelFilter::current() >= tracing::Level::INFO
}

/// Returns whether a subscriber records [`announced`].
pub(super) fn records_announcements() -> bool {
    tracing::enabled!(target: "plimsoll", tracing::Level::INFO)
}

/// Reports the limits of a layer.
pub(super) fn announced(text: &str) {
    tracing::info!(target: "plimsoll", "{text}");
}

/// Reports a decision that denies a check, or that a shadow charge would have denied.
#[inline]
pub(super) fn decided<'r>(
    decision: &Decision<'_>,
    log: &DenialLog,
    route: impl FnOnce() -> Option<&'r str>,
) {
    if enabled() {
        report(decision, log, route);
    }
}

#[inline(never)]
fn report<'r>(decision: &Decision<'_>, log: &DenialLog, route: impl FnOnce() -> Option<&'r str>) {
    let refused_shadow = |outcome: &Outcome<'_>| outcome.kind() == OutcomeKind::WouldDeny;
    let outcome = match decision {
        Decision::Denied(denied) => denied.binding(),
        Decision::Allowed(allowed) => allowed.outcomes().iter().find(refused_shadow),
    };
    if let Some(outcome) = outcome
        && tracing::enabled!(target: "plimsoll", tracing::Level::INFO)
        && let Some(suppressed) = log.admit(&outcome)
    {
        denied(outcome, decision, route(), suppressed);
    }
}

fn denied(
    outcome: Outcome<'_>,
    decision: &Decision<'_>,
    route: Option<&str>,
    suppressed: Suppressed,
) {
    let (standing, source) = (outcome.standing(), decision.source());
    let (policy, cost, key) =
        (outcome.policy().name(), outcome.charge().cost(), outcome.charge().key());
    // The fallback decides by the share of this process, so there the used units are those of the share.
    let share = (source == Source::Fallback).then(|| standing.limit());
    let limit = share.map_or(standing.limit(), |_| outcome.quota().capacity());
    let used = standing.limit().saturating_sub(standing.remaining());
    let (source, shadow) = (source.name(), decision.is_allowed());
    let retry_after = standing.retry_after().map(tracing::field::debug);
    let Suppressed { same: suppressed, others } = suppressed;
    let suppressed_others = (others > 0).then_some(others);
    tracing::info!(
        target: "plimsoll",
        policy, ?key, cost, used, share, limit, source, retry_after, route, shadow, suppressed, suppressed_others,
        "denied"
    );
}

/// Reports a change of a breaker's state. Opening is a warning, unless it follows a failed probe.
/// `node` is the number of the breaker's node, if the store has several.
#[cold]
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

/// Reports that a call to the store has failed, at most once a second for each kind of error and
/// place.
#[cold]
pub(super) fn store_failed(error: &Error) {
    if let Some(suppressed) = FAILURES.admit(error.kind(), error.place(), Instant::now()) {
        tracing::warn!(
            target: "plimsoll",
            kind = error.kind().name(), place = error.place(), %error, suppressed,
            "the store has failed"
        );
    }
}

/// Reports that a check is not valid, at most once a second. Errors of the store are not reported here,
/// because [`store_failed`] reports them.
#[cold]
pub(crate) fn check_failed(error: &Error, admitted: bool) {
    if error.is_unavailable() {
        return;
    }
    if let Some(suppressed) = FAILURES.admit(error.kind(), "check", Instant::now()) {
        tracing::warn!(target: "plimsoll", %error, admitted, suppressed, "the check is not valid");
    }
}

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
    fn admit(&self, kind: ErrorKind, place: &str, now: Instant) -> Option<u64> {
        let mut log = self.0.lock().unwrap_or_else(PoisonError::into_inner);
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

/// Reports that a load of a lookup has failed, at most once a second for each kind of failure. `error` is
/// the error that the load returned, if it returned one.
#[cfg(feature = "lookup")]
#[cold]
pub(super) fn lookup_failed(kind: &'static str, error: Option<&dyn std::fmt::Display>) {
    if let Some(suppressed) = FAILURES.admit(ErrorKind::LookupFailed, kind, Instant::now()) {
        let error = error.map(tracing::field::display);
        tracing::warn!(target: "plimsoll", kind, error, suppressed, "a lookup has failed");
    }
}
