//! The kinds of decision, and the units that a charge takes.

use crate::policy::Charge;

/// The kinds of decision.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Mode {
    Acquire,
    Peek,
    Force,
}

impl Mode {
    /// Returns whether a charge to a key that has spent nothing would spend something.
    pub(super) fn spends(self, charge: &Charge<'_>) -> bool {
        self.affordable(charge, charge.quota().capacity()) > 0
    }

    /// Returns how many units the charge takes if `free` units are free.
    #[inline]
    pub(super) fn affordable(self, charge: &Charge<'_>, free: u64) -> u64 {
        match self {
            Self::Force => charge.cost(),
            Self::Acquire | Self::Peek if charge.cost() <= free => {
                charge.max_cost().min(available(charge, free))
            }
            Self::Acquire | Self::Peek => 0,
        }
    }
}

/// Returns how many of the `free` units the charge may take. A lease leaves half of those beyond its
/// cost to others.
#[inline]
fn available(charge: &Charge<'_>, free: u64) -> u64 {
    if charge.is_lease() { free - (free - charge.cost()).div_ceil(2) } else { free }
}
