//! The units in a stock, by the replies that granted them, and the parts of them that leave the stock.

use smallvec::SmallVec;

use crate::decision::Mark;

/// The grants of a stock, in the order in which they were asked for.
#[cfg_attr(test, derive(Clone))]
#[derive(Debug, Default)]
pub(super) struct Grants(SmallVec<[Grant; MAX_GRANTS]>);

/// The maximum number of grants in a stock.
const MAX_GRANTS: usize = 4;

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

impl Grants {
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Takes `cost` units from the oldest grant that holds as many. Returns their mark, and the time
    /// before which they may be used.
    pub(super) fn take(&mut self, cost: u64) -> Option<(Mark, u64)> {
        let grant = self.0.iter_mut().find(|it| it.units >= cost && !it.is_over)?;
        Some((grant.take(cost), grant.end))
    }

    /// Refunds units to the grant with this mark. Returns `false` if there is none.
    pub(super) fn refund(&mut self, mark: Mark, units: u64) -> bool {
        let grant = self.0.iter_mut().find(|grant| grant.is_of(mark));
        grant.map(|grant| grant.units = grant.units.saturating_add(units)).is_some()
    }

    /// Ends the grants whose units may be used no later than the units of `late`.
    pub(super) fn end(&mut self, late: &Taken) {
        let late = self.0.iter_mut().filter(|grant| grant.end <= late.end);
        late.for_each(|grant| grant.is_over = true);
    }

    /// Adds a grant. If there are too many, an empty one makes room, or else the oldest, whose units
    /// are returned.
    pub(super) fn add(&mut self, grant: Grant) -> Option<Leftover> {
        let leftover = if self.0.len() < MAX_GRANTS {
            None
        } else {
            let position = self.0.iter().position(|grant| grant.units == 0).unwrap_or(0);
            self.0.remove(position).leftover()
        };
        self.0.push(grant);
        leftover
    }

    /// Takes the units that may no longer be used at `now`.
    pub(super) fn take_ended(&mut self, now: u64) -> Leftovers {
        let mut leftovers = Leftovers::new();
        self.0.retain(|grant| {
            let is_open = grant.is_open(now);
            if !is_open {
                leftovers.extend(grant.leftover());
            }
            is_open
        });
        leftovers
    }

    /// Takes all units.
    pub(super) fn take_all(&mut self) -> Leftovers {
        self.0.drain(..).filter_map(|grant| grant.leftover()).collect()
    }

    /// Returns the number of units that can be used at `now`.
    pub(super) fn units_at(&self, now: u64) -> u64 {
        let usable = self.0.iter().filter(|it| it.is_open(now));
        usable.map(|it| it.units).fold(0, u64::saturating_add)
    }

    /// Returns whether a grant holds `cost` units at `now`.
    pub(super) fn holds(&self, cost: u64, now: u64) -> bool {
        self.0.iter().any(|it| it.units >= cost && it.is_open(now))
    }
}

impl Grant {
    /// Takes units of the grant, which holds as many. Returns their mark.
    fn take(&mut self, units: u64) -> Mark {
        self.units -= units;
        // Under a token bucket, the units were charged before those that are left.
        if self.has_debt_mark { self.mark.before(self.units) } else { self.mark }
    }

    /// Returns whether units of the grant can be used at `now`.
    fn is_open(&self, now: u64) -> bool {
        !self.is_over && now < self.end
    }

    /// Returns whether units with this mark are of the grant.
    fn is_of(&self, mark: Mark) -> bool {
        self.mark == mark || self.has_debt_mark && mark.is_within(self.mark, self.granted)
    }

    /// Returns the units that are left, if there are any.
    ///
    /// Under a token bucket, the store has no record of other refunds. They may have removed older debts, so
    /// the refill may already have paid for this grant. The mark assumes this: it is the mark of a charge to a
    /// full bucket. So refilled units never come back twice.
    pub(super) fn leftover(&self) -> Option<Leftover> {
        let Self { mark, has_debt_mark, granted, units, .. } = *self;
        let mark = if has_debt_mark { mark.with_debt(granted) } else { mark };
        (units > 0).then_some(Leftover { mark, units })
    }
}

impl Taken {
    /// Returns whether the units may be used at `now`, which is read after they were taken.
    pub(crate) fn is_usable(&self, now: u64) -> bool {
        now < self.end
    }
}
