//! What a check came to.

use std::{iter, slice, time::Duration};

use smallvec::SmallVec;

use crate::{
    clock::Timestamp,
    decision::{ChargeReply, Receipt, Source, Spent, Standing, StoreReply, Verdict},
    error::{Error, ErrorKind},
    policy::{Charge, Charges, Policy},
};

/// What a check came to: everything was admitted, or nothing was spent.
#[derive(Debug, Clone)]
#[must_use = "a decision that nobody reads admits everything"]
pub enum Decision<'p> {
    /// Every charge was admitted.
    Allowed(Allowed<'p>),
    /// At least one charge was refused, and none was spent.
    Denied(Denied<'p>),
}

/// The findings of an admitted check.
#[derive(Debug, Clone)]
pub struct Allowed<'p>(Findings<'p>);

/// The findings of a refused check.
#[derive(Debug, Clone)]
pub struct Denied<'p>(Findings<'p>);

#[derive(Debug, Clone)]
struct Findings<'p> {
    charges: Charges<'p>,
    /// A line for each charge.
    reply: StoreReply,
    binding: Option<usize>,
}

/// The outcome of one charge.
#[derive(Debug, Clone, Copy)]
pub struct Outcome<'a> {
    charge: &'a Charge<'a>,
    line: &'a ChargeReply,
}

/// The outcome of every charge of a check, in their order. Equal charges are summed and have one
/// outcome.
#[derive(Debug, Clone, Copy)]
pub struct Outcomes<'a> {
    charges: &'a [Charge<'a>],
    lines: &'a [ChargeReply],
}

impl<'p> Decision<'p> {
    /// Joins charges with what the store answered.
    ///
    /// # Errors
    ///
    /// If there is not a line for each charge.
    #[inline]
    pub(crate) fn new(charges: Charges<'p>, reply: StoreReply) -> Result<Self, Error> {
        if reply.charges.len() != charges.len() {
            return Err(Error::new(
                ErrorKind::Unavailable,
                "the store answered another number of charges than it was asked",
            ));
        }
        let outcomes = Outcomes { charges: &charges, lines: &reply.charges };
        let (admitted, binding) = outcomes.bind();
        Ok(if admitted {
            Self::Allowed(Allowed(Findings { charges, reply, binding }))
        } else {
            Self::Denied(Denied(Findings { charges, reply, binding }))
        })
    }

    /// The same for a check of one charge.
    #[inline]
    pub(crate) fn of_one(
        charges: Charges<'p>,
        shadow: bool,
        time: Timestamp,
        source: Source,
        line: ChargeReply,
    ) -> Self {
        let admitted = line.verdict == Verdict::Passed || shadow;
        let binding = (!shadow).then_some(0);
        let reply = StoreReply { time, source, charges: SmallVec::from_buf([line]) };
        if admitted {
            Self::Allowed(Allowed(Findings { charges, reply, binding }))
        } else {
            Self::Denied(Denied(Findings { charges, reply, binding }))
        }
    }

    /// Whether the check was admitted.
    #[must_use]
    pub fn is_allowed(&self) -> bool {
        matches!(self, Self::Allowed(_))
    }

    /// The outcome of every charge, in their order.
    #[must_use]
    pub fn outcomes(&self) -> Outcomes<'_> {
        self.findings().outcomes()
    }

    /// The outcome that matters most: of a denial the one with the longest wait, of an admission
    /// the one with the fewest units left. `None` if nothing but shadow charges was decided.
    #[must_use]
    pub fn binding(&self) -> Option<Outcome<'_>> {
        self.findings().binding()
    }

    /// The store's time of the decision.
    #[must_use]
    pub fn time(&self) -> Timestamp {
        self.findings().reply.time
    }

    /// Who decided.
    #[must_use]
    pub fn source(&self) -> Source {
        self.findings().reply.source
    }

    /// The same decision, owning its policy handles.
    pub fn into_owned(self) -> Decision<'static> {
        match self {
            Self::Allowed(Allowed(findings)) => Decision::Allowed(Allowed(findings.into_owned())),
            Self::Denied(Denied(findings)) => Decision::Denied(Denied(findings.into_owned())),
        }
    }

    /// A receipt for some units of the charge at `place`.
    pub(crate) fn receipt(&self, place: usize, units: u64) -> Receipt {
        let spent = self.outcomes().get(place).map(|Outcome { charge, line }| {
            Spent::new(charge.clone().into_owned(), units.min(line.units), line.mark)
        });
        Receipt::new(self.time(), self.source(), spent)
    }

    /// Notes where the key of the charge at `place` stands after a refund.
    pub(crate) fn restate(&mut self, place: usize, standing: Standing) {
        if let Self::Allowed(Allowed(findings)) = self {
            if let Some(line) = findings.reply.charges.get_mut(place) {
                line.standing = standing;
            }
            findings.binding = findings.outcomes().tightest();
        }
    }

    fn findings(&self) -> &Findings<'p> {
        match self {
            Self::Allowed(Allowed(findings)) | Self::Denied(Denied(findings)) => findings,
        }
    }
}

impl Findings<'_> {
    fn outcomes(&self) -> Outcomes<'_> {
        Outcomes { charges: &self.charges, lines: &self.reply.charges }
    }

    fn binding(&self) -> Option<Outcome<'_>> {
        self.outcomes().get(self.binding?)
    }

    fn into_owned(self) -> Findings<'static> {
        Findings { charges: self.charges.into_owned(), ..self }
    }
}

impl<'a> Outcomes<'a> {
    /// How many there are.
    #[must_use]
    pub fn len(self) -> usize {
        self.charges.len()
    }

    /// Whether nothing was decided.
    #[must_use]
    pub fn is_empty(self) -> bool {
        self.charges.is_empty()
    }

    /// The outcome of the charge at `place`.
    #[must_use]
    pub fn get(self, place: usize) -> Option<Outcome<'a>> {
        Some(Outcome { charge: self.charges.get(place)?, line: self.lines.get(place)? })
    }

    /// One after the other.
    pub fn iter(self) -> impl DoubleEndedIterator<Item = Outcome<'a>> + ExactSizeIterator {
        self.into_iter()
    }

    /// Whether everything was admitted, and where the outcome is that matters most.
    #[inline]
    fn bind(self) -> (bool, Option<usize>) {
        let refused = |it: Outcome<'_>| it.verdict() != Verdict::Passed && !it.charge.is_shadow();
        match (self.charges, self.lines) {
            ([charge], [line]) => {
                (!refused(Outcome { charge, line }), (!charge.is_shadow()).then_some(0))
            }
            _ if self.iter().any(refused) => (false, self.longest_wait()),
            _ => (true, self.tightest()),
        }
    }

    fn tightest(self) -> Option<usize> {
        self.first_of_max(|outcome| u64::MAX - outcome.line.standing.remaining)
    }

    /// Returns the place of the refused outcome with the longest wait. A cost over capacity waits
    /// forever.
    fn longest_wait(self) -> Option<usize> {
        self.first_of_max(|Outcome { line, .. }| match (line.verdict, line.standing.retry_after) {
            (Verdict::OverCapacity, _) => u64::MAX,
            // The store refused and named no wait, so that no wait of the check is known.
            (Verdict::Refused, None) => u64::MAX - 1,
            (Verdict::Refused, Some(wait)) => wait.saturating_add(1).min(u64::MAX - 2),
            (Verdict::Passed, _) => 0,
        })
    }

    /// Where the first is that has the maximum, of those that bind.
    fn first_of_max(self, by: impl Fn(Outcome<'a>) -> u64) -> Option<usize> {
        let binding = self.iter().enumerate().filter(|(_, outcome)| !outcome.charge.is_shadow());
        binding.rev().max_by_key(|(_, outcome)| by(*outcome)).map(|(place, _)| place)
    }
}

impl<'a> IntoIterator for Outcomes<'a> {
    type Item = Outcome<'a>;
    type IntoIter = iter::Map<
        iter::Zip<slice::Iter<'a, Charge<'a>>, slice::Iter<'a, ChargeReply>>,
        fn((&'a Charge<'a>, &'a ChargeReply)) -> Outcome<'a>,
    >;

    fn into_iter(self) -> Self::IntoIter {
        self.charges.iter().zip(self.lines).map(|(charge, line)| Outcome { charge, line })
    }
}

impl<'p> Allowed<'p> {
    /// The outcome of every charge, in their order.
    #[must_use]
    pub fn outcomes(&self) -> Outcomes<'_> {
        self.0.outcomes()
    }

    /// Returns the store's time of the decision.
    #[must_use]
    pub fn time(&self) -> Timestamp {
        self.0.reply.time
    }

    /// Returns which store decided.
    #[must_use]
    pub fn source(&self) -> Source {
        self.0.reply.source
    }

    /// The fewest units left under any of the policies; `None` if nothing was decided.
    #[must_use]
    pub fn remaining(&self) -> Option<u64> {
        Some(self.0.binding()?.standing().remaining)
    }

    /// What a refund or a settlement needs.
    pub fn into_receipt(self) -> Receipt {
        let Findings { charges, reply, .. } = self.0;
        let lines = charges.into_iter().zip(&reply.charges);
        let spent =
            lines.map(|(charge, line)| Spent::new(charge.into_owned(), line.units, line.mark));
        Receipt::new(reply.time, reply.source, spent)
    }
}

impl<'p> Denied<'p> {
    /// The outcome of every charge, in their order.
    #[must_use]
    pub fn outcomes(&self) -> Outcomes<'_> {
        self.0.outcomes()
    }

    /// Returns the store's time of the decision.
    #[must_use]
    pub fn time(&self) -> Timestamp {
        self.0.reply.time
    }

    /// Returns which store decided.
    #[must_use]
    pub fn source(&self) -> Source {
        self.0.reply.source
    }

    /// The outcome with the longest wait.
    #[must_use]
    pub fn binding(&self) -> Option<Outcome<'_>> {
        self.0.binding()
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

    /// Whether a cost exceeds the capacity of its policy, so that waiting does not help.
    #[must_use]
    pub fn is_over_capacity(&self) -> bool {
        self.binding().is_some_and(|binding| binding.verdict() == Verdict::OverCapacity)
    }
}

impl<'a> Outcome<'a> {
    /// What was asked for.
    #[must_use]
    pub fn charge(self) -> &'a Charge<'a> {
        self.charge
    }

    /// The policy that decided.
    #[must_use]
    pub fn policy(self) -> &'a Policy {
        self.charge.policy()
    }

    /// Whether the charge by itself passes.
    #[must_use]
    pub fn verdict(self) -> Verdict {
        self.line.verdict
    }

    /// Units spent: none if the check was denied.
    #[must_use]
    pub fn granted(self) -> u64 {
        self.line.units
    }

    /// Where the key stands now.
    #[must_use]
    pub fn standing(self) -> &'a Standing {
        &self.line.standing
    }
}
