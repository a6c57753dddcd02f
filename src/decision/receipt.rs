//! What was charged, for a refund or a settlement.

use smallvec::SmallVec;

use crate::{
    clock::Timestamp,
    decision::{Mark, Source},
    policy::Charge,
};

/// What a refund or a settlement needs. It can be used once, so it cannot be cloned.
#[derive(Debug)]
#[must_use = "dropping a receipt keeps the charge"]
pub struct Receipt {
    time: Timestamp,
    source: Source,
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
    pub(crate) fn new(
        time: Timestamp,
        source: Source,
        lines: impl IntoIterator<Item = Spent>,
    ) -> Self {
        Self { time, source, lines: lines.into_iter().collect() }
    }

    /// The store's time of the charge.
    #[must_use]
    pub fn time(&self) -> Timestamp {
        self.time
    }

    /// Who charged it.
    #[must_use]
    pub fn source(&self) -> Source {
        self.source
    }

    /// The same receipt, of one of so many equal parts of the quotas.
    pub(crate) fn share(&self, parts: u32) -> Self {
        let lines = self.lines.iter().map(|Spent { charge, units, mark }| Spent {
            charge: charge.share(parts),
            units: *units,
            mark: *mark,
        });
        Self { time: self.time, source: self.source, lines: lines.collect() }
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
        let mut back = Self { time: self.time, source: self.source, lines: SmallVec::new() };
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
    pub(crate) fn new(charge: Charge<'static>, units: u64, mark: Mark) -> Self {
        Self { charge, units, mark }
    }

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
