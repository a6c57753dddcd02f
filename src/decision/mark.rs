//! The record with which a store refunds a charge.

/// The record of one [`Charge`](crate::Charge), with which a store
/// [refunds](crate::store::Request::Refund) the units that the charge still holds, and no others.
///
/// It has three numbers. Only the [`Store`](crate::store::Store) that creates them interprets them.
///
/// ```
/// use tollgate::Mark;
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
}
