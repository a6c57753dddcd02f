//! The outcome of each charge of a check.

use std::cmp::Reverse;

use super::{ChargeReply, Standing, Verdict};
use crate::policy::Charge;

/// The outcome of one [`Charge`].
///
/// ```
/// use plimsoll::{Limiter, Policy, Quota, store::Verdict};
///
/// let user = Policy::new("user", Quota::per_minute(100))?;
/// let export = Policy::new("export", Quota::per_hour(2))?;
/// let decision = Limiter::in_memory().check_now([user.charge("alice", 1), export.charge("alice", 3)])?;
/// for outcome in decision.outcomes() {
///     let left = outcome.standing().remaining();
///     println!("{}: {:?}, {left} units left", outcome.charge().policy().name(), outcome.verdict());
/// }
///
/// let user = decision.outcomes().get(0).expect("one outcome for each charge");
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

/// The result of a decision for one [`Charge`]. [`Outcome::kind`] returns it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum OutcomeKind {
    /// The check was admitted, and the charge was made.
    Allowed,
    /// The charge was refused, and so the check was denied.
    Denied,
    /// The charge passes by itself, but another charge of the check was refused. Nothing was spent.
    NotCharged,
    /// The charge is a [shadow](Charge::shadow) or a [trial](Charge::trial), and passes by itself.
    WouldAllow,
    /// The charge is a [shadow](Charge::shadow) or a [trial](Charge::trial). If it were live, it would
    /// deny the check.
    WouldDeny,
}

impl OutcomeKind {
    /// Returns the name of the kind in metrics, such as `not_charged`.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Allowed => "allowed",
            Self::Denied => "denied",
            Self::NotCharged => "not_charged",
            Self::WouldAllow => "would_allow",
            Self::WouldDeny => "would_deny",
        }
    }
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

    /// Returns the result of the decision for this charge. A denial counts against the charges that were
    /// refused, and not against the others of the check.
    ///
    /// ```
    /// use plimsoll::{Limiter, Policy, Quota, decision::OutcomeKind};
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), plimsoll::Error> {
    /// let limiter = Limiter::in_memory();
    /// let free = Policy::new("free", Quota::per_minute(1))?;
    /// let overall = Policy::new("overall", Quota::per_second(1_000))?;
    /// let charges = || [free.charge("alice", 1), overall.charge("all", 1)];
    ///
    /// let _ = limiter.check(charges()).await?;
    /// let decision = limiter.check(charges()).await?;
    /// let kinds: Vec<_> = decision.outcomes().map(|outcome| outcome.kind()).collect();
    /// assert_eq!(kinds, [OutcomeKind::Denied, OutcomeKind::NotCharged]);
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn kind(self) -> OutcomeKind {
        match (self.charge.is_live(), self.is_admitted, self.reply.verdict) {
            (false, _, Verdict::Passed) => OutcomeKind::WouldAllow,
            (false, ..) => OutcomeKind::WouldDeny,
            (true, true, _) => OutcomeKind::Allowed,
            (true, false, Verdict::Passed) => OutcomeKind::NotCharged,
            (true, false, _) => OutcomeKind::Denied,
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
        let wait = self.reply.standing.retry_after?;
        let is_in_flight = self.charge.quota().is_concurrent();
        Some(if is_in_flight { wait.min(CONCURRENT_WAIT_MICROS) } else { wait })
    }
}

/// The estimated wait in microseconds until another unit in flight is released.
const CONCURRENT_WAIT_MICROS: u64 = 1_000_000;

impl<'a> Outcomes<'a> {
    pub(super) fn new(charges: &'a [Charge<'a>], replies: &'a [ChargeReply]) -> Self {
        // A shadow or a trial never denies a check.
        let is_admitted = charges
            .iter()
            .zip(replies)
            .all(|(charge, reply)| reply.verdict == Verdict::Passed || !charge.is_live());
        Self::of_decided(charges, replies, is_admitted)
    }

    /// Returns the outcomes of a check that was decided before.
    pub(crate) fn of_decided(
        charges: &'a [Charge<'a>],
        replies: &'a [ChargeReply],
        is_admitted: bool,
    ) -> Self {
        Self { charges, replies, is_admitted }
    }

    /// Returns the outcome of the charge at `position`.
    #[must_use]
    pub fn get(mut self, position: usize) -> Option<Outcome<'a>> {
        self.nth(position)
    }

    /// Returns whether the check was admitted.
    pub(super) fn are_admitted(self) -> bool {
        self.is_admitted
    }

    /// Returns the position of the outcome with the fewest units left.
    pub(crate) fn tightest(self) -> Option<u8> {
        self.first_of_max(|outcome| u64::MAX - outcome.standing().remaining)
    }

    /// Returns the position of the refused outcome with the longest wait.
    pub(super) fn longest_wait(self) -> Option<u8> {
        self.first_of_max(|outcome| match (outcome.verdict(), outcome.wait_micros()) {
            (Verdict::OverCapacity, _) => u64::MAX,
            // The store refused and named no wait, so that no wait of the check is known.
            (Verdict::Refused, None) => u64::MAX - 1,
            (Verdict::Refused, Some(wait)) => wait.saturating_add(1).min(u64::MAX - 2),
            (Verdict::Passed, _) => 0,
        })
    }

    /// Returns the position of the first outcome that has the maximum. Shadows and trials do not
    /// count.
    fn first_of_max(self, value: impl Fn(Outcome<'a>) -> u64) -> Option<u8> {
        let live = self.enumerate().filter(|(_, outcome)| outcome.charge().is_live());
        let (position, _) = live.min_by_key(|(_, outcome)| Reverse(value(*outcome)))?;
        u8::try_from(position).ok()
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
