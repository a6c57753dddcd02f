//! What operators see: the one place that knows that `tracing` and `metrics` exist.

pub(crate) use events::{decided as log, no_peer, store_failed};
pub(crate) use numbers::{Counters, decided as count, store_answered};
#[cfg(feature = "redis")]
pub(crate) use resilience::undo_failed;
pub(crate) use resilience::{
    breaker_changed, breaker_made, deadline_missed, denied_from_cache, fell_back,
};

/// Whether anybody may want to hear of a decision. Numbers do not say whether they are collected.
#[inline]
pub(crate) fn listens() -> bool {
    cfg!(feature = "metrics") || events::listens()
}

/// Events of target `tollgate`.
#[cfg(feature = "tracing")]
mod events {
    use std::{
        sync::{Mutex, Once, PoisonError},
        time::Duration,
    };

    use tokio::time::Instant;
    use tracing::level_filters::LevelFilter;

    use crate::{
        decision::{Decision, Outcome, Verdict},
        error::{Error, ErrorKind},
    };

    /// One event for a decision that denies, or that a trial would have denied. If nobody listens, it
    /// costs a glance at a flag.
    #[inline]
    pub(crate) fn decided<'r>(decision: &Decision<'_>, route: impl FnOnce() -> Option<&'r str>) {
        if listens() {
            heard(decision, route);
        }
    }

    /// Whether somebody may listen to what is decided.
    #[inline]
    pub(crate) fn listens() -> bool {
        LevelFilter::current() >= tracing::Level::INFO
    }

    #[inline(never)]
    fn heard<'r>(decision: &Decision<'_>, route: impl FnOnce() -> Option<&'r str>) {
        let trial = |outcome: &Outcome<'_>| {
            outcome.charge().is_shadow() && outcome.verdict() != Verdict::Passed
        };
        let outcome = match decision {
            Decision::Denied(denied) => denied.binding(),
            Decision::Allowed(allowed) => allowed.outcomes().iter().find(trial),
        };
        if let Some(outcome) = outcome
            && tracing::enabled!(target: "tollgate", tracing::Level::INFO)
        {
            denied(outcome, decision.is_allowed(), route());
        }
    }

    fn denied(outcome: Outcome<'_>, trial: bool, route: Option<&str>) {
        let standing = outcome.standing();
        let (policy, cost, limit) =
            (outcome.policy().name(), outcome.charge().cost(), standing.limit());
        let key = outcome.charge().key();
        let used = limit.saturating_sub(standing.remaining());
        let retry_after = standing.retry_after().map(tracing::field::debug);
        tracing::info!(
            target: "tollgate",
            policy, ?key, cost, used, limit, retry_after, route, trial, "denied"
        );
    }

    /// At most one event a second and kind of error, however many requests fail. That the store is
    /// left alone is said once, by its breaker.
    #[cold]
    pub(crate) fn store_failed(error: &Error, admitted: bool) {
        if error.kind() == ErrorKind::BreakerOpen {
            return;
        }
        if let Some(unsaid) = TOLD.turn(error.kind(), Instant::now()) {
            tracing::warn!(target: "tollgate", %error, admitted, unsaid, "the store cannot answer");
        }
    }

    /// Which kinds of errors were told when, and how many have not been since.
    struct Told(Mutex<Vec<(ErrorKind, Instant, u64)>>);

    static TOLD: Told = Told(Mutex::new(Vec::new()));

    impl Told {
        /// How many errors of this kind have gone unsaid, if it is time to tell one again.
        fn turn(&self, kind: ErrorKind, now: Instant) -> Option<u64> {
            let mut told = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            let Some((_, last, unsaid)) = told.iter_mut().find(|(other, ..)| *other == kind) else {
                told.push((kind, now, 0));
                return Some(0);
            };
            if now.saturating_duration_since(*last) < Duration::from_secs(1) {
                *unsaid += 1;
                return None;
            }
            *last = now;
            Some(std::mem::take(unsaid))
        }
    }

    #[cold]
    pub(crate) fn no_peer() {
        static ONCE: Once = Once::new();
        ONCE.call_once(|| {
            tracing::warn!(
                target: "tollgate",
                "requests carry no peer address, so that all clients share one key: serve axum with \
                 `app.into_make_service_with_connect_info::<SocketAddr>()`, enable tollgate's \
                 feature `tonic` under tonic, or say where it is with `ClientIp::peer_from`"
            );
        });
    }
}

#[cfg(not(feature = "tracing"))]
mod events {
    use crate::{decision::Decision, error::Error};

    #[inline]
    pub(crate) fn decided<'r>(_: &Decision<'_>, _: impl FnOnce() -> Option<&'r str>) {}

    #[inline]
    pub(crate) fn listens() -> bool {
        false
    }

    pub(crate) fn store_failed(_: &Error, _: bool) {}
    pub(crate) fn no_peer() {}
}

/// Counters and histograms: `tollgate_decisions_total` by `policy` and `outcome` (`allowed`,
/// `denied`, and of trials `would_allow`, `would_deny`), and `tollgate_store_seconds` of
/// stores that are not embedded.
#[cfg(feature = "metrics")]
mod numbers {
    use std::time::Duration;

    use crate::decision::{Decision, Outcome, Verdict};

    /// The counters of one policy, named once: counting then allocates nothing.
    #[derive(Debug)]
    pub(crate) struct Counters([metrics::Key; 4]);

    const OUTCOMES: [&str; 4] = ["allowed", "denied", "would_allow", "would_deny"];

    impl Counters {
        pub(crate) fn new(policy: &str) -> Self {
            Self(OUTCOMES.map(|outcome| {
                let labels = [("policy", policy.to_owned()), ("outcome", outcome.to_owned())];
                metrics::Key::from_parts("tollgate_decisions_total", &labels)
            }))
        }
    }

    #[inline]
    pub(crate) fn decided(decision: &Decision<'_>) {
        static METADATA: metrics::Metadata<'static> =
            metrics::Metadata::new("tollgate", metrics::Level::INFO, Some("tollgate"));
        metrics::with_recorder(|recorder| {
            for outcome in decision.outcomes() {
                let Counters(keys) = outcome.policy().counters();
                let key = &keys[place(&outcome, decision.is_allowed())];
                recorder.register_counter(key, &METADATA).increment(1);
            }
        });
    }

    /// The place among [`OUTCOMES`].
    fn place(outcome: &Outcome<'_>, allowed: bool) -> usize {
        match (outcome.charge().is_shadow(), allowed, outcome.verdict()) {
            (false, true, _) => 0,
            (false, false, _) => 1,
            (true, _, Verdict::Passed) => 2,
            (true, _, _) => 3,
        }
    }

    /// Records how long a store took to answer.
    pub(crate) fn store_answered(duration: Duration) {
        metrics::histogram!("tollgate_store_seconds").record(duration.as_secs_f64());
    }
}

#[cfg(not(feature = "metrics"))]
mod numbers {
    use std::time::Duration;

    use crate::decision::Decision;

    #[derive(Debug)]
    pub(crate) struct Counters;

    impl Counters {
        pub(crate) fn new(_: &str) -> Self {
            Self
        }
    }

    #[inline]
    pub(crate) fn decided(_: &Decision<'_>) {}

    #[inline]
    pub(crate) fn store_answered(_: Duration) {}
}

/// How the store is borne: `tollgate_breaker_state` (0 closed, 1 open, 2 half-open, 3 recovering),
/// `tollgate_fallback_total`, `tollgate_deadline_missed_total`, `tollgate_deny_cache_hits_total`,
/// `tollgate_undo_failed_total` (a denied check over several slots of a cluster of which a part stays
/// charged); and an event for each change of the breaker's state.
mod resilience {
    pub(crate) fn deadline_missed() {
        #[cfg(feature = "metrics")]
        metrics::counter!("tollgate_deadline_missed_total").increment(1);
    }

    pub(crate) fn fell_back() {
        #[cfg(feature = "metrics")]
        metrics::counter!("tollgate_fallback_total").increment(1);
    }

    #[cfg(feature = "redis")]
    pub(crate) fn undo_failed() {
        #[cfg(feature = "metrics")]
        metrics::counter!("tollgate_undo_failed_total").increment(1);
    }

    #[inline]
    pub(crate) fn denied_from_cache() {
        #[cfg(feature = "metrics")]
        metrics::counter!("tollgate_deny_cache_hits_total").increment(1);
    }

    /// A breaker begins closed. The number is 0 if there was none, and stays what another breaker has
    /// said.
    pub(crate) fn breaker_made() {
        #[cfg(feature = "metrics")]
        metrics::gauge!("tollgate_breaker_state").increment(0.0);
    }

    /// Reports a change of a breaker's state, by the names of both states and the number of the new
    /// one. A store that fails is one warning; a probe that fails is not another one.
    #[cold]
    pub(crate) fn breaker_changed(_before: &str, _after: &str, _number: u8) {
        #[cfg(feature = "metrics")]
        metrics::gauge!("tollgate_breaker_state").set(f64::from(_number));
        #[cfg(feature = "tracing")]
        match (_before, _after) {
            ("half-open", "open") | (_, "half-open") => {
                tracing::debug!(target: "tollgate", breaker = _after, "the store's breaker has changed");
            }
            (_, "open") => {
                tracing::warn!(target: "tollgate", breaker = _after, "the store's breaker has changed");
            }
            _ => {
                tracing::info!(target: "tollgate", breaker = _after, "the store's breaker has changed");
            }
        }
    }
}
