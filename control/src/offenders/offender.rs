//! A key that is limited now.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::overrides::redacted;

/// A key that is limited now. [`Offenders::top`](super::Offenders::top) returns it.
#[derive(Clone, PartialEq, Eq, Serialize)]
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

/// An order of [`Offender`]s.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum OffenderOrder {
    /// Most denials first. Equal ones are ordered by the units that they have spent.
    #[default]
    Denied,
    /// Most units first. Equal ones are ordered by their denials.
    Spent,
}

impl OffenderOrder {
    /// Returns the numbers by which an offender is placed.
    pub(crate) fn of(self, offender: &Offender) -> (u64, u64) {
        match self {
            Self::Denied => (offender.denied, offender.spent),
            Self::Spent => (offender.spent, offender.denied),
        }
    }

    /// Returns the first ones in this order.
    pub(super) fn first(self, mut offenders: Vec<Offender>, count: usize) -> Vec<Offender> {
        offenders.sort_by(|a, b| self.of(b).cmp(&self.of(a)).then_with(|| a.key.cmp(&b.key)));
        offenders.truncate(count);
        offenders
    }
}
