//! The units of one reply, and the parts of them that leave the stock.

use smallvec::SmallVec;

use crate::decision::Mark;

/// The maximum number of grants in a stock.
pub(crate) const MAX_GRANTS: usize = 4;

/// The units of one reply.
#[derive(Debug, Clone, Copy)]
pub(super) struct Grant {
    pub(super) mark: Mark,
    /// True if the second number of the mark is the debt of a token bucket after the charge.
    pub(super) has_debt_mark: bool,
    /// The number of units that the store has granted.
    pub(super) granted: u64,
    /// The units that are left.
    pub(super) units: u64,
    /// The units may be used before this time.
    pub(super) end: u64,
    /// A unit was found to be late, so no more units are taken.
    pub(super) is_over: bool,
}

/// Units that a check has taken from a stock. All of them are from one grant, so that a receipt with
/// their mark refunds them exactly.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Taken {
    pub(crate) mark: Mark,
    pub(crate) units: u64,
    pub(crate) end: u64,
    pub(super) generation: u64,
}

/// Units to refund to the store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Leftover {
    pub(crate) mark: Mark,
    pub(crate) units: u64,
}

pub(crate) type Leftovers = SmallVec<[Leftover; MAX_GRANTS]>;

impl Grant {
    /// Takes units of the grant, which holds as many. Returns their mark.
    #[inline]
    pub(super) fn take(&mut self, units: u64) -> Mark {
        self.units -= units;
        // Under a token bucket, the units were charged before those that are left.
        if self.has_debt_mark { self.mark.before(self.units) } else { self.mark }
    }

    /// Returns whether units of the grant can be used at `now`.
    #[inline]
    pub(super) fn is_open(&self, now: u64) -> bool {
        !self.is_over && now < self.end
    }

    /// Returns whether units with this mark are of the grant.
    pub(super) fn is_of(&self, mark: Mark) -> bool {
        self.mark == mark || self.has_debt_mark && mark.is_within(self.mark, self.granted)
    }

    /// Returns the units that are left, if there are any.
    ///
    /// Under a token bucket, the store has no record of other refunds. They may have removed the debts
    /// before this one, so that the refill has paid off this grant first. The mark of the units assumes
    /// it: it is that of a charge to a full bucket. So no unit comes back that has refilled since.
    pub(super) fn leftover(&self) -> Option<Leftover> {
        let Self { mark, has_debt_mark, granted, units, .. } = *self;
        let mark = if has_debt_mark { mark.with_debt(granted) } else { mark };
        (units > 0).then_some(Leftover { mark, units })
    }

    /// Splits off units that are left, of which there are as many, as if the store had not granted them.
    /// Under a token bucket, they were charged after the others.
    pub(super) fn split_off(&mut self, units: u64) -> Option<Leftover> {
        let Leftover { mark, .. } = self.leftover()?;
        self.units -= units;
        self.granted -= units;
        if self.has_debt_mark {
            self.mark = self.mark.before(units);
        }
        (units > 0).then_some(Leftover { mark, units })
    }
}

impl Taken {
    /// Returns whether the units may be used at `now`, which is read after they were taken.
    #[inline]
    pub(crate) fn is_usable(&self, now: u64) -> bool {
        now < self.end
    }
}
