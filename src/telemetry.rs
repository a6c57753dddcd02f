//! What operators see: the one place that knows that `tracing` and `metrics` exist.

pub(crate) use events::{no_peer, store_failed};
pub(crate) use numbers::{Counters, timed};
#[cfg(feature = "redis")]
pub(crate) use resilience::undo_failed;
pub(crate) use resilience::{breaker, breaker_made, deadline_missed, denied_from_cache, fell_back};

/// Reports a decision: as an event if it denies, and in the counters of its policies.
#[inline]
pub(crate) fn record_decision<'r>(
    decision: &crate::decision::Decision<'_>,
    route: impl FnOnce() -> Option<&'r str>,
) {
    events::decided(decision, route);
    numbers::decided(decision);
}

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
    use tokio::time::Instant;

    use crate::{
        decision::{Decision, Outcome, Verdict},
        store::Answer,
    };

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

    /// Notes how long a store takes whose answer is not at hand. An embedded store answers at once:
    /// reading the clock would cost as much as its answer.
    pub(crate) fn timed(answer: Answer) -> Answer {
        match answer.now() {
            Ok(reply) => Answer::ready(reply),
            Err(coming) => {
                let start = Instant::now();
                Answer::pending(async move {
                    let reply = coming.await;
                    let seconds = start.elapsed().as_secs_f64();
                    metrics::histogram!("tollgate_store_seconds").record(seconds);
                    reply
                })
            }
        }
    }
}

#[cfg(not(feature = "metrics"))]
mod numbers {
    use crate::{decision::Decision, store::Answer};

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
    pub(crate) fn timed(answer: Answer) -> Answer {
        answer
    }
}

/// How the store is borne: `tollgate_breaker_state` (0 closed, 1 open, 2 half-open, 3 recovering),
/// `tollgate_fallback_total`, `tollgate_deadline_missed_total`, `tollgate_deny_cache_hits_total`,
/// `tollgate_undo_failed_total` (a denied check over several slots of a cluster of which a part stays
/// charged); and an event for each change of the breaker's state.
mod resilience {
    use crate::store::BreakerState;

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

    /// A store that fails is a warning once; that it is tried in vain is not worth one each time.
    #[cold]
    pub(crate) fn breaker(_before: BreakerState, after: BreakerState) {
        let (_number, _name) = match after {
            BreakerState::Closed => (0.0, "closed"),
            BreakerState::Open { .. } => (1.0, "open"),
            BreakerState::HalfOpen { .. } => (2.0, "half-open"),
            BreakerState::Recovering { .. } => (3.0, "recovering"),
        };
        #[cfg(feature = "metrics")]
        metrics::gauge!("tollgate_breaker_state").set(_number);
        #[cfg(feature = "tracing")]
        match (_before, after) {
            (BreakerState::HalfOpen { .. }, BreakerState::Open { .. })
            | (_, BreakerState::HalfOpen { .. }) => {
                tracing::debug!(target: "tollgate", breaker = _name, "the store's breaker has changed");
            }
            (_, BreakerState::Open { .. }) => {
                tracing::warn!(target: "tollgate", breaker = _name, "the store's breaker has changed");
            }
            _ => {
                tracing::info!(target: "tollgate", breaker = _name, "the store's breaker has changed");
            }
        }
    }
}
