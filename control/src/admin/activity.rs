//! The [decisions](Decision) of the layers, for the charts and the list of denials.

use std::sync::Arc;

use plimsoll::{
    Decision,
    decision::{Outcome, OutcomeKind},
};

use tokio::time::Instant;

use super::{
    denials::{Denial, Denials},
    rates::{Rates, Samples, place},
};
use crate::{
    Offenders,
    by_name::ByName,
    time::{to_millis, wall_time},
};

/// The policies with rates. A service has no more, unless its names are made from requests.
const MAX_POLICIES: usize = 1_000;

/// The rates of each policy and the recent denials of this process. Clones share them.
///
/// Pass the [decisions](Decision) of all layers to [`record`](Self::record). It passes them on to the
/// [`Offenders`].
///
/// ```
/// use plimsoll::{Limiter, RateLimitLayer};
/// use plimsoll_control::{Offenders, admin::Activity};
///
/// let activity = Activity::new(Offenders::new(1_000));
/// let decisions = activity.clone();
/// let layer = RateLimitLayer::per_ip(Limiter::in_memory(), "100/min")?
///     .on_decision(move |decision, _| decisions.record(decision));
/// # Ok::<(), plimsoll::Error>(())
/// ```
#[derive(Debug, Clone)]
pub struct Activity(Arc<State>);

#[derive(Debug)]
struct State {
    offenders: Offenders,
    /// The time by which samples are numbered.
    start: Instant,
    rates: ByName<Rates>,
    denials: Denials,
}

impl Activity {
    /// Creates an activity without decisions.
    #[must_use]
    pub fn new(offenders: Offenders) -> Self {
        let (start, denials) = (Instant::now(), Denials::default());
        Self(Arc::new(State { offenders, start, rates: ByName::new(MAX_POLICIES), denials }))
    }

    /// Counts a decision, and keeps its denials.
    pub fn record(&self, decision: &Decision<'_>) {
        self.0.offenders.record(decision);
        let elapsed = self.0.start.elapsed();
        let place = place(elapsed);
        for outcome in decision.outcomes().iter() {
            let record = |rates: &Rates| rates.record(outcome.kind(), place);
            self.0.rates.with(outcome.policy().name(), || Rates::new(place), record);
            if outcome.kind() == OutcomeKind::Denied {
                let denial = || self.denial(decision, outcome);
                self.0.denials.record(elapsed.as_secs(), denial);
            }
        }
    }

    /// Returns the requests under a policy, or `None` if there were none.
    pub(super) fn samples(&self, policy: &str) -> Option<Samples> {
        Some(self.0.rates.get(policy)?.samples(place(self.0.start.elapsed())))
    }

    pub(super) fn offenders(&self) -> &Offenders {
        &self.0.offenders
    }

    pub(super) fn denials(&self) -> &Denials {
        &self.0.denials
    }

    fn denial(&self, decision: &Decision<'_>, outcome: Outcome<'_>) -> Denial {
        Denial {
            time: to_millis(wall_time()),
            policy: outcome.policy().name().to_owned(),
            key: self.0.offenders.shown(outcome.charge().key()),
            limit: outcome.standing().limit(),
            retry_after: outcome.standing().retry_after().map(|it| it.as_secs_f64()),
            source: decision.source().name(),
            suppressed: 0,
        }
    }
}

#[cfg(test)]
mod tests {
    use plimsoll::{Limiter, Policy};

    use super::*;

    #[test]
    fn policies_without_a_place_are_not_counted() {
        let (activity, limiter) = (Activity::new(Offenders::new(1)), Limiter::in_memory());
        let record = |policy: usize| {
            let policy = Policy::new(&format!("p{policy}"), "9/min").unwrap();
            activity.record(&limiter.check_now(policy.charge("alice", 1)).unwrap());
        };
        (0..MAX_POLICIES).for_each(record);
        (0..MAX_POLICIES + 10).for_each(record);
        assert_eq!(activity.0.rates.all().len(), MAX_POLICIES);
        assert!(activity.samples(&format!("p{}", MAX_POLICIES)).is_none());
        let samples = activity.samples("p7").unwrap();
        assert_eq!(samples.allowed.iter().sum::<u64>(), 2);
    }
}
