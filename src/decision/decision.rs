//! The decision on a check.

use std::mem;

use smallvec::SmallVec;

use super::{
    Allowed, ChargeReply, Denied, Outcome, Outcomes, Receipt, ReceiptLine, Source, Standing,
    StoreReply, Verdict,
};
use crate::{
    clock::Timestamp,
    error::{Error, ErrorKind},
    policy::Charges,
};

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
#[derive(Debug, Clone)]
#[must_use = "an unused decision admits every request"]
pub enum Decision<'p> {
    /// Every charge that is not a [shadow](crate::Charge::shadow) was admitted. A shadow charge was
    /// spent only if it passed by itself.
    Allowed(Allowed<'p>),
    /// At least one charge was refused, and no charge was spent.
    Denied(Denied<'p>),
}

/// The content of a decision.
#[derive(Debug, Clone)]
pub(super) struct Details<'p> {
    pub(super) charges: Charges<'p>,
    pub(super) time: Timestamp,
    pub(super) source: Source,
    /// The position of the outcome that binds. One byte is enough for [`Charges::MAX`].
    binding: Option<u8>,
    /// Has a line for each charge.
    pub(super) replies: SmallVec<[ChargeReply; 1]>,
}

impl<'p> Decision<'p> {
    /// Joins charges, which it takes out of `charges`, with the reply of the store.
    ///
    /// # Errors
    ///
    /// Returns an error if the reply does not have a line for each charge.
    #[inline]
    pub(crate) fn new(charges: &mut Charges<'p>, reply: StoreReply) -> Result<Self, Error> {
        let StoreReply { time, source, charges: replies } = reply;
        if replies.len() != charges.len() {
            return Err(wrong_length());
        }
        let outcomes = Outcomes::new(charges, &replies);
        Ok(if outcomes.are_admitted() {
            let binding = outcomes.tightest();
            let charges = mem::take(charges);
            Self::Allowed(Allowed(Details { charges, time, source, binding, replies }))
        } else {
            let binding = outcomes.longest_wait();
            let charges = mem::take(charges);
            Self::Denied(Denied(Details { charges, time, source, binding, replies }))
        })
    }

    /// Joins charges that were spent whatever the verdicts on them with the reply of the store.
    ///
    /// # Errors
    ///
    /// Returns an error if the reply does not have a line for each charge.
    pub(crate) fn forced(charges: Charges<'p>, reply: StoreReply) -> Result<Allowed<'p>, Error> {
        let StoreReply { time, source, charges: replies } = reply;
        if replies.len() != charges.len() {
            return Err(wrong_length());
        }
        let binding = Outcomes::new(&charges, &replies).tightest();
        Ok(Allowed(Details { charges, time, source, binding, replies }))
    }

    /// Joins one charge, which it takes out of `charges`, with its reply. The result is the same as
    /// that of [`new`](Self::new), but the charge and the reply are moved only once.
    #[inline(always)]
    pub(crate) fn of_one(
        charges: &mut Charges<'p>,
        is_shadow: bool,
        time: Timestamp,
        source: Source,
        reply: ChargeReply,
    ) -> Self {
        let binding = (!is_shadow).then_some(0);
        if reply.verdict == Verdict::Passed || is_shadow {
            Self::Allowed(Allowed(Details {
                charges: mem::take(charges),
                time,
                source,
                binding,
                replies: SmallVec::from_buf([reply]),
            }))
        } else {
            Self::Denied(Denied(Details {
                charges: mem::take(charges),
                time,
                source,
                binding,
                replies: SmallVec::from_buf([reply]),
            }))
        }
    }

    /// Returns whether the check was admitted.
    #[must_use]
    pub fn is_allowed(&self) -> bool {
        matches!(self, Self::Allowed(_))
    }

    /// Returns the outcome of every charge, in their order.
    #[must_use]
    pub fn outcomes(&self) -> Outcomes<'_> {
        self.details().outcomes(self.is_allowed())
    }

    /// Returns the binding outcome: of a denial the one with the longest wait, of an admission the
    /// one with the fewest units left. It is `None` if all charges are
    /// [shadows](crate::Charge::shadow).
    #[must_use]
    pub fn binding(&self) -> Option<Outcome<'_>> {
        self.details().binding(self.is_allowed())
    }

    /// Returns the store's time of the decision.
    #[must_use]
    pub fn time(&self) -> Timestamp {
        self.details().time
    }

    /// Returns the kind of store that decided.
    #[must_use]
    pub fn source(&self) -> Source {
        self.details().source
    }

    /// Returns the same decision with [`Policy`](crate::Policy) handles of its own.
    pub fn into_owned(self) -> Decision<'static> {
        match self {
            Self::Allowed(Allowed(details)) => Decision::Allowed(Allowed(details.into_owned())),
            Self::Denied(Denied(details)) => Decision::Denied(Denied(details.into_owned())),
        }
    }

    /// Returns a receipt for at most `units` units of the charge at `position`. It has no line if
    /// the charge was not made.
    pub(crate) fn receipt(&self, position: usize, units: u64) -> Receipt {
        let Details { charges, replies, .. } = self.details();
        let line = charges.get(position).zip(replies.get(position));
        let line = line.and_then(|(charge, reply)| {
            ReceiptLine::of_reply(charge.clone(), reply, self.source(), units)
        });
        Receipt::new(self.time(), self.source(), line)
    }

    /// Replaces the standing of the charge at `position` after a refund.
    pub(crate) fn restate(&mut self, position: usize, standing: Standing) {
        if let Self::Allowed(Allowed(details)) = self {
            if let Some(reply) = details.replies.get_mut(position) {
                reply.standing = standing;
            }
            details.binding = details.outcomes(true).tightest();
        }
    }

    fn details(&self) -> &Details<'p> {
        match self {
            Self::Allowed(Allowed(details)) | Self::Denied(Denied(details)) => details,
        }
    }
}

impl Details<'_> {
    pub(super) fn outcomes(&self, is_admitted: bool) -> Outcomes<'_> {
        Outcomes::of_decided(&self.charges, &self.replies, is_admitted)
    }

    pub(super) fn binding(&self, is_admitted: bool) -> Option<Outcome<'_>> {
        self.outcomes(is_admitted).get(self.binding?.into())
    }

    fn into_owned(self) -> Details<'static> {
        Details { charges: self.charges.into_owned(), ..self }
    }
}

#[cold]
fn wrong_length() -> Error {
    Error::new(
        ErrorKind::Unavailable,
        "the store answered another number of charges than it was asked",
    )
}
