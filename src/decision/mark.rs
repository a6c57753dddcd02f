//! What a store needs to refund one charge.

/// What an algorithm remembers of one charge so that it can give back what that charge still
/// weighs, and nothing else.
///
/// Three numbers, which mean something to the store that made them, and nothing to anybody else.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Mark(pub(crate) u64, pub(crate) u64, pub(crate) u64);

impl Mark {
    /// The mark of these numbers.
    #[must_use]
    #[inline]
    pub const fn new([first, second, third]: [u64; 3]) -> Self {
        Self(first, second, third)
    }

    /// The numbers that it was made of.
    #[must_use]
    #[inline]
    pub const fn parts(self) -> [u64; 3] {
        [self.0, self.1, self.2]
    }
}
