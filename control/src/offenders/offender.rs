//! A key that is limited now.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::overrides::redacted;

/// A key that is limited now. [`Offenders::top`](super::Offenders::top) returns it.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Offender {
    /// The key: a digest such as `#1f2e3d4c`, which is also in log lines, unless
    /// [`show_keys`](super::Offenders::show_keys) was called.
    pub key: String,
    /// The number of its denials.
    pub denied: u64,
    /// The number of units that it has spent.
    pub spent: u64,
}

/// Prints no key in the clear.
impl fmt::Debug for Offender {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Offender")
            .field("key", &redacted(&self.key))
            .field("denied", &self.denied)
            .field("spent", &self.spent)
            .finish()
    }
}

/// The order of denials, and of units behind it.
pub(super) fn by_denials(offender: &Offender) -> (u64, u64) {
    (offender.denied, offender.spent)
}

/// The order of units, and of denials behind it.
pub(super) fn by_units(offender: &Offender) -> (u64, u64) {
    (offender.spent, offender.denied)
}

/// Returns the first ones in this order, the largest first.
pub(super) fn first(
    mut offenders: Vec<Offender>,
    count: usize,
    order: fn(&Offender) -> (u64, u64),
) -> Vec<Offender> {
    offenders.sort_by(|a, b| order(b).cmp(&order(a)).then_with(|| a.key.cmp(&b.key)));
    offenders.truncate(count);
    offenders
}
