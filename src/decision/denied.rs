//! The details of a denied check.

use std::time::Duration;

use super::{Outcome, Outcomes, Source, Verdict, decision::Details};
use crate::clock::Timestamp;

/// The details of a denied check: the outcome of each charge, and the wait.
/// [`Decision`](super::Decision) has an example.
#[derive(Debug, Clone)]
pub struct Denied<'p>(pub(super) Details<'p>);

impl<'p> Denied<'p> {
    /// Returns the outcome of every charge, in their order.
    #[must_use]
    pub fn outcomes(&self) -> Outcomes<'_> {
        self.0.outcomes(false)
    }

    /// Returns the refused outcome with the longest wait. A refusal without a wait counts as longer
    /// than one with a wait, and a cost over capacity as the longest.
    #[must_use]
    pub fn binding(&self) -> Option<Outcome<'_>> {
        self.0.binding(false)
    }

    /// Returns the shortest wait after which the whole check is admitted if no other check spends
    /// units meanwhile.
    ///
    /// It is `None` if a cost exceeds the capacity of its policy
    /// ([`is_over_capacity`](Self::is_over_capacity)), or if the store named no wait.
    #[must_use]
    pub fn retry_after(&self) -> Option<Duration> {
        self.binding()?.standing().retry_after()
    }

    /// Returns whether a cost exceeds the capacity of its policy, so that the check can never be
    /// admitted.
    ///
    /// This follows the [`Verdict`], not the wait: a store that refuses and names no wait has not
    /// said that the cost is over capacity.
    #[must_use]
    pub fn is_over_capacity(&self) -> bool {
        self.binding().is_some_and(|binding| binding.verdict() == Verdict::OverCapacity)
    }

    /// Returns the store's time of the decision.
    #[must_use]
    pub fn time(&self) -> Timestamp {
        self.0.time
    }

    /// Returns the kind of store that decided.
    #[must_use]
    pub fn source(&self) -> Source {
        self.0.source
    }
}

#[cfg(test)]
mod tests {
    use crate::{
        clock::Timestamp,
        decision::{ChargeReply, Decision, Mark, Source, Standing, StoreReply, Verdict},
        policy::{Charges, Policy},
        quota::Quota,
    };

    /// Decides one charge for each verdict and wait.
    fn decide(lines: &[(Verdict, Option<u64>)], expect: impl FnOnce(&Decision<'_>)) {
        let policy = Policy::new("policy", Quota::per_second(10)).unwrap();
        let mut charges: Charges<'_> =
            (0..lines.len() as u64).map(|key| policy.charge(key, 1)).collect();
        let charges_of_reply = lines.iter().map(|&(verdict, retry_after)| ChargeReply {
            verdict,
            units: 0,
            standing: Standing { retry_after, ..Standing::full(10) },
            mark: Mark::default(),
        });
        let reply = StoreReply {
            time: Timestamp::from_micros(7),
            source: Source::Shared,
            charges: charges_of_reply.collect(),
        };
        expect(&Decision::new(&mut charges, reply).unwrap());
    }

    #[test]
    fn a_refusal_without_a_wait_binds_and_is_not_over_capacity() {
        let lines =
            [(Verdict::Passed, None), (Verdict::Refused, Some(5)), (Verdict::Refused, None)];
        decide(&lines, |decision| {
            let Decision::Denied(denied) = decision else { panic!("{decision:?}") };
            assert_eq!(denied.binding().unwrap().charge().key(), &2.into());
            assert_eq!((denied.retry_after(), denied.is_over_capacity()), (None, false));
            assert_eq!((denied.source(), denied.time().as_micros()), (Source::Shared, 7));
        });
    }

    #[test]
    fn a_cost_over_capacity_binds_before_all_others() {
        let lines = [(Verdict::Refused, None), (Verdict::OverCapacity, None)];
        decide(&lines, |decision| {
            let Decision::Denied(denied) = decision else { panic!("{decision:?}") };
            assert_eq!(denied.binding().unwrap().charge().key(), &1.into());
            assert!(denied.is_over_capacity());
        });
    }

    #[test]
    fn a_charge_that_passes_never_binds_a_denial() {
        let lines = [(Verdict::Passed, None), (Verdict::Refused, Some(0))];
        decide(&lines, |decision| {
            assert_eq!(decision.binding().unwrap().verdict(), Verdict::Refused);
        });
    }
}
