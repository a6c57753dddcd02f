//! The decision on a check.

use std::time::Duration;

use super::{Outcome, Outcomes, Receipt, ReceiptLine, Source, Standing, StoreReply, Verdict};
use crate::{clock::Timestamp, error::Error, policy::Charges};

/// The decision on a check: all charges were admitted, or none was spent.
///
/// ```
/// use plimsoll::{Decision, Limiter, Policy, Quota};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), plimsoll::Error> {
/// let limiter = Limiter::in_memory();
/// let search = Policy::new("search", Quota::per_minute(100))?;
///
/// match limiter.check(search.charge("alice", 1)).await? {
///     Decision::Allowed(allowed) => assert_eq!(allowed.remaining(), Some(99)),
///     Decision::Denied(denied) => println!("retry after {:?}", denied.retry_after()),
/// }
/// # Ok(())
/// # }
/// ```
///
/// A check whose decision is ignored is warned of, so it does not compile where warnings are errors:
///
/// ```compile_fail
/// #![deny(unused_must_use)]
///
/// use plimsoll::{Error, Limiter, Policy};
///
/// async fn ignores(limiter: &Limiter, policy: &Policy) -> Result<(), Error> {
///     limiter.check(policy.charge("alice", 1)).await?;
///     Ok(())
/// }
/// ```
#[derive(Debug, Clone)]
#[must_use = "an unused decision admits every request"]
pub enum Decision<'p> {
    /// Every live charge was admitted. A [shadow](crate::Charge::shadow) or a
    /// [trial](crate::Charge::trial) was spent only if it passed by itself.
    Allowed(Allowed<'p>),
    /// At least one charge was refused, and no charge was spent, except
    /// [trials](crate::Charge::trial) that passed by themselves.
    Denied(Denied<'p>),
}

/// A check: its charges, and the reply to them, which the store writes.
///
/// It stays in one box from its beginning to the end of its [`Decision`]. A reply that is moved costs more than the
/// box: it is written in words of 8 bytes, and a copy with wider loads stalls the processor until the words have left
/// the store buffer (`benches/check.rs`, one charge).
#[derive(Debug, Clone, Default)]
pub(crate) struct Checked<'p> {
    pub(crate) charges: Charges<'p>,
    /// Has a line for each charge once the check is decided.
    pub(crate) reply: StoreReply,
}

impl<'p> Checked<'p> {
    /// Creates a check without charges.
    pub(crate) fn empty() -> Box<Self> {
        Box::default()
    }

    /// Creates a check of these charges.
    ///
    /// The box is made first: meanwhile, the words of the charges leave the store buffer. It is not inlined, so that
    /// its caller does not copy the charges before the box is made (`benches/check.rs`, one charge).
    #[inline(never)]
    pub(crate) fn new(charges: impl Into<Charges<'p>>) -> Box<Self> {
        let mut check = Self::empty();
        check.charges = charges.into();
        check
    }

    /// Creates a check to which the store has replied.
    pub(crate) fn with_reply(charges: Charges<'p>, reply: StoreReply) -> Box<Self> {
        Box::new(Self { charges, reply })
    }

    /// Returns the check with the reply of the store.
    pub(crate) fn replied(mut self: Box<Self>, reply: StoreReply) -> Box<Self> {
        self.reply = reply;
        self
    }

    /// Returns the outcomes of the charges.
    ///
    /// # Errors
    ///
    /// Returns an error if the reply does not have a line for each charge.
    pub(crate) fn outcomes(&self) -> Result<Outcomes<'_>, Error> {
        Outcomes::new(&self.charges, &self.reply)
    }

    /// Returns the check with [`Policy`](crate::Policy) handles of its own.
    pub(crate) fn into_owned(self: Box<Self>) -> Box<Checked<'static>> {
        Checked::with_reply(self.charges.into_owned(), self.reply)
    }
}

impl<'p> Decision<'p> {
    /// Creates the decision on a check to which the store has replied.
    ///
    /// # Errors
    ///
    /// Returns an error if the reply does not have a line for each charge.
    pub(crate) fn new(check: Box<Checked<'p>>) -> Result<Self, Error> {
        if check.outcomes()?.are_admitted() {
            return Ok(Self::Allowed(Allowed(check)));
        }
        Ok(Self::Denied(Denied(check)))
    }

    /// Creates the decision on charges that were spent whatever the verdicts on them.
    ///
    /// # Errors
    ///
    /// Returns an error if the reply does not have a line for each charge.
    pub(crate) fn forced(check: Box<Checked<'p>>) -> Result<Allowed<'p>, Error> {
        check.outcomes()?;
        Ok(Allowed(check))
    }

    /// Returns whether the check was admitted.
    #[must_use]
    pub fn is_allowed(&self) -> bool {
        matches!(self, Self::Allowed(_))
    }

    /// Returns the outcome of every charge, in their order.
    #[must_use]
    pub fn outcomes(&self) -> Outcomes<'_> {
        match self {
            Self::Allowed(allowed) => allowed.outcomes(),
            Self::Denied(denied) => denied.outcomes(),
        }
    }

    /// Returns the binding outcome: in a denial the charge with the longest wait, in an admission the charge
    /// with the fewest units left. It is `None` if all charges are [shadows](crate::Charge::shadow) or
    /// [trials](crate::Charge::trial).
    #[must_use]
    pub fn binding(&self) -> Option<Outcome<'_>> {
        self.outcomes().binding()
    }

    /// Returns the store's time of the decision.
    #[must_use]
    pub fn time(&self) -> Timestamp {
        self.checked().reply.time
    }

    /// Returns the kind of store that decided.
    #[must_use]
    pub fn source(&self) -> Source {
        self.checked().reply.source
    }

    /// Returns the same decision with [`Policy`](crate::Policy) handles of its own.
    pub fn into_owned(self) -> Decision<'static> {
        match self {
            Self::Allowed(Allowed(check)) => Decision::Allowed(Allowed(check.into_owned())),
            Self::Denied(Denied(check)) => Decision::Denied(Denied(check.into_owned())),
        }
    }

    /// Returns a receipt for at most `units` units of the charge at `position`. It has no line if
    /// the charge was not made.
    pub(crate) fn receipt(&self, position: usize, units: u64) -> Receipt {
        let Checked { charges, reply } = self.checked();
        let line = charges.get(position).zip(reply.charges.get(position));
        let line = line
            .and_then(|(charge, reply)| ReceiptLine::of_reply(charge, reply, self.source(), units));
        Receipt::new(self.time(), self.source(), line)
    }

    /// Returns the receipt of the units that the check holds in flight, if there are any.
    pub(crate) fn in_flight(&self) -> Option<Receipt> {
        let Self::Allowed(Allowed(check)) = self else { return None };
        let lines = check.charges.iter().zip(&check.reply.charges);
        let held =
            lines.filter(|(charge, reply)| charge.quota().is_concurrent() && reply.units > 0);
        held.clone().next()?;
        let lines = held.filter_map(|(charge, reply)| {
            ReceiptLine::of_reply(charge, reply, self.source(), u64::MAX)
        });
        Some(Receipt::new(self.time(), self.source(), lines))
    }

    /// Replaces the standing of the charge at `position` after a refund.
    pub(crate) fn restate(&mut self, position: usize, standing: Standing) {
        if let Self::Allowed(Allowed(check)) = self
            && let Some(reply) = check.reply.charges.get_mut(position)
        {
            reply.standing = standing;
        }
    }

    fn checked(&self) -> &Checked<'p> {
        match self {
            Self::Allowed(Allowed(check)) | Self::Denied(Denied(check)) => check,
        }
    }
}

/// The details of a denied check: the outcome of each charge, and the wait.
/// [`Decision`] has an example.
#[derive(Debug, Clone)]
pub struct Denied<'p>(Box<Checked<'p>>);

impl<'p> Denied<'p> {
    /// Returns the outcome of every charge, in their order.
    #[must_use]
    pub fn outcomes(&self) -> Outcomes<'_> {
        Outcomes::of_decided(&self.0.charges, &self.0.reply.charges, false)
    }

    /// Returns the refused outcome with the longest wait. A refusal without a wait counts as longer
    /// than one with a wait, and a cost over capacity as the longest.
    #[must_use]
    pub fn binding(&self) -> Option<Outcome<'_>> {
        self.outcomes().binding()
    }

    /// Returns the shortest wait after which the whole check is admitted if no other check spends
    /// units meanwhile.
    ///
    /// It is `None` if a cost exceeds the capacity of its policy
    /// ([`is_over_capacity`](Self::is_over_capacity)), or if the store named no wait.
    #[must_use]
    pub fn retry_after(&self) -> Option<Duration> {
        self.binding()?.wait_micros().map(Duration::from_micros)
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
    pub(crate) fn time(&self) -> Timestamp {
        self.0.reply.time
    }

    /// Returns the kind of store that decided.
    #[must_use]
    pub fn source(&self) -> Source {
        self.0.reply.source
    }
}

/// The details of an admitted check: the outcome of each charge, and the receipt.
/// [`Decision`] has an example.
#[derive(Debug, Clone)]
pub struct Allowed<'p>(Box<Checked<'p>>);

impl<'p> Allowed<'p> {
    /// Returns the outcome of every charge, in their order.
    #[must_use]
    pub fn outcomes(&self) -> Outcomes<'_> {
        Outcomes::of_decided(&self.0.charges, &self.0.reply.charges, true)
    }

    /// Returns the fewest units left under any of the policies, or `None` if all charges are
    /// [shadows](crate::Charge::shadow) or [trials](crate::Charge::trial).
    #[must_use]
    pub fn remaining(&self) -> Option<u64> {
        Some(self.outcomes().binding()?.standing().remaining)
    }

    /// Returns the [`Receipt`] for a refund or a settlement (see
    /// [`Limiter::hold`](crate::Limiter::hold)).
    pub fn into_receipt(self) -> Receipt {
        let Checked { charges, reply } = *self.0;
        let lines = charges.iter().zip(&reply.charges).filter_map(|(charge, line)| {
            ReceiptLine::of_reply(charge, line, reply.source, u64::MAX)
        });
        Receipt::new(reply.time, reply.source, lines)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use crate::{
        clock::Timestamp,
        decision::{ChargeReply, Checked, Decision, Mark, Source, Standing, StoreReply, Verdict},
        policy::{Charges, Policy},
        quota::Quota,
    };

    /// Decides one charge for each verdict and wait.
    fn decide(lines: &[(Verdict, Option<u64>)], expect: impl FnOnce(&Decision<'_>)) {
        let policy = Policy::new("policy", Quota::per_second(10)).unwrap();
        let charges: Charges<'_> =
            (0..lines.len() as u64).map(|key| policy.charge(key, 1)).collect();
        let charges_of_reply = lines.iter().map(|&(verdict, wait)| ChargeReply {
            verdict,
            units: 0,
            standing: Standing {
                retry_after: wait.map(Duration::from_micros),
                ..Standing::full(10)
            },
            mark: Mark::default(),
        });
        let reply = StoreReply {
            time: Timestamp::from_micros(7),
            source: Source::Shared,
            charges: charges_of_reply.collect(),
        };
        expect(&Decision::new(Checked::with_reply(charges, reply)).unwrap());
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

    #[test]
    fn only_a_concurrency_limit_has_units_in_flight() {
        let jobs = Policy::new("jobs", Quota::concurrent(10)).unwrap();
        let day = Policy::new("day", Quota::per_day(10)).unwrap();
        let held = |lines: &[(&Policy, Verdict, u64)]| {
            let charges: Charges<'_> =
                lines.iter().map(|(policy, _, units)| policy.charge(1, *units).shadow()).collect();
            let standing = Standing::full(10);
            let replies = lines.iter().map(|&(_, verdict, units)| ChargeReply {
                verdict,
                units,
                standing,
                mark: Mark::default(),
            });
            let reply = StoreReply::new(Timestamp::from_micros(7), Source::Local, replies);
            let receipt = Decision::new(Checked::with_reply(charges, reply)).unwrap().in_flight();
            receipt.map(|receipt| receipt.lines().iter().map(|line| line.units).sum())
        };
        assert_eq!(held(&[(&day, Verdict::Passed, 3)]), None);
        assert_eq!(held(&[(&jobs, Verdict::Passed, 3)]), Some(3));
        assert_eq!(held(&[(&jobs, Verdict::Passed, 3), (&day, Verdict::Passed, 5)]), Some(3));
        assert_eq!(held(&[(&jobs, Verdict::Refused, 0), (&day, Verdict::Passed, 5)]), None);
    }
}
