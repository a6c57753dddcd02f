//! The outcome of each charge of a check.

use std::cmp::Reverse;

use super::{ChargeReply, Standing, StoreReply, Verdict};
use crate::{
    clock::micros_up,
    error::{Error, ErrorKind},
    policy::{Charge, OUTCOMES},
};

/// The outcome of one [`Charge`].
///
/// ```
/// use plimsoll::{Limiter, Policy, Quota, store::Verdict};
///
/// let user = Policy::new("user", Quota::per_minute(100))?;
/// let export = Policy::new("export", Quota::per_hour(2))?;
/// let decision = Limiter::in_memory().check_now([user.charge("alice", 1), export.charge("alice", 3)])?;
/// for outcome in decision.outcomes() {
///     let left = outcome.standing().remaining;
///     println!("{}: {:?}, {left} units left", outcome.charge().policy().name(), outcome.verdict());
/// }
///
/// let user = decision.outcomes().next().expect("one outcome for each charge");
/// assert_eq!(user.verdict(), Verdict::Passed);
/// // The other charge was refused, so none is spent.
/// assert_eq!(user.granted(), 0);
/// # Ok::<(), plimsoll::Error>(())
/// ```
#[derive(Debug, Clone, Copy)]
pub struct Outcome<'a> {
    charge: &'a Charge<'a>,
    reply: &'a ChargeReply,
    /// True if the check was admitted.
    is_admitted: bool,
}

/// The outcomes of all charges of a check: an iterator in the order of the charges.
///
/// [`Charges`](crate::policy::Charges) of the same policy and key are summed, and have one outcome.
#[derive(Debug, Clone, Copy)]
pub struct Outcomes<'a> {
    charges: &'a [Charge<'a>],
    replies: &'a [ChargeReply],
    /// True if the check was admitted.
    is_admitted: bool,
}

impl<'a> Outcome<'a> {
    /// Returns the charge.
    #[must_use]
    pub fn charge(self) -> &'a Charge<'a> {
        self.charge
    }

    /// Returns the verdict on this charge by itself. A charge that passes is still not spent if
    /// another charge of its check is refused.
    #[must_use]
    pub fn verdict(self) -> Verdict {
        self.reply.verdict
    }

    /// Returns the name of the outcome in metrics, on the page of an administrator and in the responses of the
    /// service. A denial counts against the charges that were refused, and not against the others of the check.
    ///
    /// | name | the charge |
    /// |---|---|
    /// | `allowed` | was made |
    /// | `denied` | was refused, and so the check was denied |
    /// | `not_charged` | passes by itself, but another charge of the check was refused |
    /// | `would_allow` | is a [shadow](Charge::shadow) or a [trial](Charge::trial), and passes by itself |
    /// | `would_deny` | is a shadow or a trial, and would deny the check if it were live |
    ///
    /// ```
    /// use plimsoll::{Limiter, Policy, Quota};
    ///
    /// let limiter = Limiter::in_memory();
    /// let free = Policy::new("free", Quota::per_minute(1))?;
    /// let overall = Policy::new("overall", Quota::per_second(1_000))?;
    /// let decision = limiter.check_now([free.charge("alice", 2), overall.charge("all", 1)])?;
    /// let names: Vec<_> = decision.outcomes().map(|outcome| outcome.name()).collect();
    /// assert_eq!(names, ["denied", "not_charged"]);
    /// # Ok::<(), plimsoll::Error>(())
    /// ```
    #[must_use]
    pub fn name(self) -> &'static str {
        OUTCOMES[self.number()]
    }

    /// Returns the index of the [name](Self::name) in [`OUTCOMES`].
    pub(crate) fn number(self) -> usize {
        match (self.charge.is_live(), self.is_admitted, self.reply.verdict) {
            (true, true, _) => 0,
            (true, false, Verdict::Passed) => 2,
            (true, false, _) => 1,
            (false, _, Verdict::Passed) => 3,
            (false, ..) => 4,
        }
    }

    /// Returns the number of units spent. In a denied check it is 0, except for a [trial](Charge::trial)
    /// that passes.
    #[must_use]
    pub fn granted(self) -> u64 {
        self.reply.units
    }

    /// Returns the [`Standing`] of the key after the check.
    #[must_use]
    pub fn standing(self) -> &'a Standing {
        &self.reply.standing
    }

    /// Returns the wait of a refused charge in microseconds. Under a concurrency limit it is an estimate:
    /// the time until a unit expires says nothing about when one is released.
    pub(crate) fn wait_micros(self) -> Option<u64> {
        let wait = micros_up(self.reply.standing.retry_after?);
        let is_in_flight = self.charge.quota().is_concurrent();
        Some(if is_in_flight { wait.min(CONCURRENT_WAIT_MICROS) } else { wait })
    }

    /// Returns the wait of a charge as a number that is larger the longer it is.
    fn wait_to_compare(self) -> u64 {
        match (self.verdict(), self.wait_micros()) {
            (Verdict::OverCapacity, _) => u64::MAX,
            // The store refused and named no wait, so that no wait of the check is known.
            (Verdict::Refused, None) => u64::MAX - 1,
            (Verdict::Refused, Some(wait)) => wait.saturating_add(1).min(u64::MAX - 2),
            (Verdict::Passed, _) => 0,
        }
    }
}

/// The estimated wait in microseconds until another unit in flight is released.
const CONCURRENT_WAIT_MICROS: u64 = 1_000_000;

impl<'a> Outcomes<'a> {
    /// Creates the outcomes of a check from the reply of a store.
    ///
    /// # Errors
    ///
    /// Returns an error if the reply does not have a line for each charge.
    #[inline]
    pub(crate) fn new(charges: &'a [Charge<'a>], reply: &'a StoreReply) -> Result<Self, Error> {
        let replies = &*reply.charges;
        if replies.len() != charges.len() {
            return Err(Error::new(
                ErrorKind::Unavailable,
                "the store answered another number of charges than it was asked",
            ));
        }
        // A shadow or a trial never denies a check.
        let is_admitted = charges
            .iter()
            .zip(replies)
            .all(|(charge, reply)| reply.verdict == Verdict::Passed || !charge.is_live());
        Ok(Self::of_decided(charges, replies, is_admitted))
    }

    /// Returns the outcomes of a check that was decided before.
    pub(crate) fn of_decided(
        charges: &'a [Charge<'a>],
        replies: &'a [ChargeReply],
        is_admitted: bool,
    ) -> Self {
        Self { charges, replies, is_admitted }
    }

    /// Returns whether the check was admitted.
    pub(crate) fn are_admitted(self) -> bool {
        self.is_admitted
    }

    /// Returns the binding outcome, the first if there are several. In a denied check, it is the refused charge with
    /// the longest wait. In an admitted check, it is the charge with the fewest units left. Shadows and trials do not
    /// bind.
    pub(crate) fn binding(self) -> Option<Outcome<'a>> {
        let live = self.filter(|outcome| outcome.charge().is_live());
        if self.is_admitted {
            live.min_by_key(|outcome| outcome.standing().remaining)
        } else {
            live.min_by_key(|outcome| Reverse(outcome.wait_to_compare()))
        }
    }
}

impl<'a> Iterator for Outcomes<'a> {
    type Item = Outcome<'a>;

    fn next(&mut self) -> Option<Outcome<'a>> {
        let (charge, charges) = self.charges.split_first()?;
        let (reply, replies) = self.replies.split_first()?;
        (self.charges, self.replies) = (charges, replies);
        Some(Outcome { charge, reply, is_admitted: self.is_admitted })
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        (self.charges.len(), Some(self.charges.len()))
    }
}

impl ExactSizeIterator for Outcomes<'_> {}
