//! The record with which a store refunds a charge.

/// The record of one [`Charge`](crate::Charge), with which a store
/// [refunds](crate::store::Request::Refund) the units that the charge still holds, and no others.
///
/// It has three numbers. Only the [`Store`](crate::store::Store) that creates them interprets them.
///
/// ```
/// use plimsoll::Mark;
///
/// let window_number = 28_333_333;
/// let mark = Mark::new([window_number, 0, 0]);
/// assert_eq!(mark.parts()[0], window_number);
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Mark(pub(crate) u64, pub(crate) u64, pub(crate) u64);

impl Mark {
    /// Creates a mark of three numbers.
    #[must_use]
    #[inline]
    pub const fn new([first, second, third]: [u64; 3]) -> Self {
        Self(first, second, third)
    }

    /// Returns the three numbers.
    #[must_use]
    #[inline]
    pub const fn parts(self) -> [u64; 3] {
        [self.0, self.1, self.2]
    }

    /// Returns the mark of the first units of a charge, without the last `units` of them. The second
    /// number of this mark is the debt of a token bucket after the charge. Debts are paid in their
    /// order, so the mark shows how much of them is paid before the first units.
    #[inline]
    pub(crate) const fn before(self, units: u64) -> Self {
        Self(self.0, self.1.saturating_sub(units), self.2)
    }

    /// Returns the mark of the same charge to a token bucket that has a debt of `debt` units after it.
    pub(crate) const fn with_debt(self, debt: u64) -> Self {
        Self(self.0, debt, self.2)
    }

    /// Returns whether this mark belongs to a part of a charge of `units` units with the mark `whole`.
    pub(crate) const fn is_within(self, whole: Self, units: u64) -> bool {
        self.0 == whole.0
            && self.2 == whole.2
            && self.1 <= whole.1
            && self.1 > whole.1.saturating_sub(units)
    }
}
