//! What a check came to.

use std::time::Duration;

use smallvec::SmallVec;

use crate::{
    algorithm::Mark,
    charge::Charge,
    clock::Timestamp,
    few::{self, Few},
    policy::Policy,
    standing::Standing,
    store::{Line, Ruling, Source, Verdict},
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
    outcomes: SmallVec<[Outcome<'p>; 1]>,
    binding: Option<usize>,
    time: Timestamp,
    source: Source,
}

/// The outcome of one charge. Equal charges of a check are summed and have one outcome.
#[derive(Debug, Clone)]
pub struct Outcome<'p> {
    charge: Charge<'p>,
    line: Line,
}

impl<'p> Decision<'p> {
    /// Joins charges with what the store answered.
    #[inline]
    pub(crate) fn new(charges: Few<Charge<'p>>, ruling: Ruling) -> Self {
        let Ruling { time, source, lines } = ruling;
        let outcomes = few::join(charges, lines, |charge, line| Outcome { charge, line });
        let mut findings = Findings { outcomes, binding: None, time, source };
        let admitted = findings.bind();
        if admitted { Self::Allowed(Allowed(findings)) } else { Self::Denied(Denied(findings)) }
    }

    /// Whether the check was admitted.
    #[must_use]
    pub fn is_allowed(&self) -> bool {
        matches!(self, Self::Allowed(_))
    }

    /// The outcome of every charge, in their order.
    #[must_use]
    pub fn outcomes(&self) -> &[Outcome<'p>] {
        &self.findings().outcomes
    }

    /// The outcome that matters most: of a denial the one with the longest wait, of an admission
    /// the one with the fewest units left. `None` if nothing but shadow charges was decided.
    #[must_use]
    pub fn binding(&self) -> Option<&Outcome<'p>> {
        let findings = self.findings();
        findings.outcomes.get(findings.binding?)
    }

    /// The store's time of the decision.
    #[must_use]
    pub fn time(&self) -> Timestamp {
        self.findings().time
    }

    /// Who decided.
    #[must_use]
    pub fn source(&self) -> Source {
        self.findings().source
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
        let findings = self.findings();
        let lines = findings.outcomes.get(place).map(|Outcome { charge, line }| Spent {
            charge: charge.clone().into_owned(),
            units: units.min(line.units),
            mark: line.mark,
        });
        Receipt { time: findings.time, lines: lines.into_iter().collect() }
    }

    /// Notes where the key of the charge at `place` stands after a refund.
    pub(crate) fn restate(&mut self, place: usize, standing: Standing) {
        if let Self::Allowed(Allowed(findings)) = self {
            if let Some(outcome) = findings.outcomes.get_mut(place) {
                outcome.line.standing = standing;
            }
            findings.binding = findings.tightest();
        }
    }

    fn findings(&self) -> &Findings<'p> {
        match self {
            Self::Allowed(Allowed(findings)) | Self::Denied(Denied(findings)) => findings,
        }
    }
}

impl<'p> Findings<'p> {
    fn binding_outcomes(&self) -> impl Iterator<Item = &Outcome<'p>> {
        self.outcomes.iter().filter(|outcome| !outcome.charge.is_shadow())
    }

    /// Finds what binds; says whether everything was admitted.
    fn bind(&mut self) -> bool {
        let admitted = self.binding_outcomes().all(|outcome| outcome.verdict() == Verdict::Passed);
        self.binding = if admitted { self.tightest() } else { self.longest_wait() };
        admitted
    }

    fn tightest(&self) -> Option<usize> {
        self.index_of_max(|outcome| std::cmp::Reverse(outcome.line.standing.remaining))
    }

    /// A cost over capacity waits forever.
    fn longest_wait(&self) -> Option<usize> {
        self.index_of_max(|outcome| match outcome.line.verdict {
            Verdict::OverCapacity => u64::MAX,
            Verdict::Passed | Verdict::Refused => outcome.line.standing.retry_after.unwrap_or(0),
        })
    }

    /// The first that has the maximum.
    fn index_of_max<T: Ord>(&self, by: impl Fn(&Outcome<'p>) -> T) -> Option<usize> {
        let binding =
            self.outcomes.iter().enumerate().filter(|(_, outcome)| !outcome.charge.is_shadow());
        binding.rev().max_by_key(|(_, outcome)| by(outcome)).map(|(index, _)| index)
    }

    fn into_owned(self) -> Findings<'static> {
        let outcomes = self
            .outcomes
            .into_iter()
            .map(|Outcome { charge, line }| Outcome { charge: charge.into_owned(), line });
        Findings { outcomes: outcomes.collect(), ..self }
    }
}

impl<'p> Allowed<'p> {
    /// The outcome of every charge, in their order.
    #[must_use]
    pub fn outcomes(&self) -> &[Outcome<'p>] {
        &self.0.outcomes
    }

    /// The fewest units left under any of the policies; `None` if nothing was decided.
    #[must_use]
    pub fn remaining(&self) -> Option<u64> {
        Some(self.0.outcomes.get(self.0.binding?)?.line.standing.remaining)
    }

    /// What a refund or a settlement needs.
    pub fn into_receipt(self) -> Receipt {
        let lines = self.0.outcomes.into_iter().map(|Outcome { charge, line }| Spent {
            charge: charge.into_owned(),
            units: line.units,
            mark: line.mark,
        });
        Receipt { time: self.0.time, lines: lines.collect() }
    }
}

impl<'p> Denied<'p> {
    /// The outcome of every charge, in their order.
    #[must_use]
    pub fn outcomes(&self) -> &[Outcome<'p>] {
        &self.0.outcomes
    }

    /// The outcome with the longest wait.
    #[must_use]
    pub fn binding(&self) -> Option<&Outcome<'p>> {
        self.0.outcomes.get(self.0.binding?)
    }

    /// The shortest wait after which the whole check is admitted if nobody else spends; `None` if
    /// that can never be, because a cost exceeds the capacity of its policy.
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

impl<'p> Outcome<'p> {
    /// What was asked for.
    #[must_use]
    pub fn charge(&self) -> &Charge<'p> {
        &self.charge
    }

    /// The policy that decided.
    #[must_use]
    pub fn policy(&self) -> &Policy {
        self.charge.policy()
    }

    /// Whether the charge by itself passes.
    #[must_use]
    pub fn verdict(&self) -> Verdict {
        self.line.verdict
    }

    /// Units spent: none if the check was denied.
    #[must_use]
    pub fn granted(&self) -> u64 {
        self.line.units
    }

    /// Where the key stands now.
    #[must_use]
    pub fn standing(&self) -> &Standing {
        &self.line.standing
    }
}

/// What a refund or a settlement needs. It can be used once, so it cannot be cloned.
#[derive(Debug)]
#[must_use = "dropping a receipt keeps the charge"]
pub struct Receipt {
    time: Timestamp,
    lines: SmallVec<[Spent; 1]>,
}

/// One line of a [`Receipt`].
#[derive(Debug)]
pub struct Spent {
    charge: Charge<'static>,
    units: u64,
    mark: Mark,
}

impl Receipt {
    /// The store's time of the charge.
    #[must_use]
    pub fn time(&self) -> Timestamp {
        self.time
    }

    /// A line for each charge.
    #[must_use]
    pub fn lines(&self) -> &[Spent] {
        &self.lines
    }

    /// Splits what was charged into what to give back and what to charge on top, so that each
    /// line ends at `units`.
    pub(crate) fn settle(self, units: u64) -> (Self, SmallVec<[Charge<'static>; 1]>) {
        let mut more = SmallVec::new();
        let mut back = Self { time: self.time, lines: SmallVec::new() };
        for mut line in self.lines {
            if line.units < units {
                more.push(line.charge.again(units - line.units));
            } else if line.units > units {
                line.units -= units;
                back.lines.push(line);
            }
        }
        (back, more)
    }
}

impl Spent {
    /// What was asked for.
    #[must_use]
    pub fn charge(&self) -> &Charge<'static> {
        &self.charge
    }

    /// Units that were spent.
    #[must_use]
    pub fn units(&self) -> u64 {
        self.units
    }

    /// What the store needs to give the units back.
    #[must_use]
    pub fn mark(&self) -> Mark {
        self.mark
    }
}
