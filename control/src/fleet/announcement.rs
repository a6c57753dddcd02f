//! The announcement of an instance.

use std::{collections::BTreeMap, ops::AddAssign};

use serde::{Deserialize, Serialize};

use crate::offenders::Totals;

/// The announcement of an instance, once a second. It has no address, no host name and no key.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Announcement {
    pub(super) version: String,
    /// The time since the start of the instance.
    pub(super) uptime_millis: u64,
    /// The time in which the counts have increased.
    pub(super) period_millis: u64,
    /// The counts by policy.
    pub(super) policies: BTreeMap<String, Increase>,
}

/// The units that an instance has admitted and denied: since its start, and in the last seconds.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
#[serde(from = "(u64, u64, u64, u64)", into = "(u64, u64, u64, u64)")]
pub(crate) struct Increase {
    pub(super) admitted: u64,
    pub(super) denied: u64,
    /// The units of the period alone.
    pub(super) admitted_lately: u64,
    pub(super) denied_lately: u64,
}

/// The units that one instance or several have admitted and denied. Refunds are not subtracted.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Units {
    /// The units of admitted checks since the start of each instance.
    pub admitted: u64,
    /// The units of denied charges since the start of each instance.
    pub denied: u64,
    /// The units of admitted checks a second, in the last five seconds.
    pub admitted_per_second: f64,
    /// The units of denied charges a second, in the last five seconds.
    pub denied_per_second: f64,
}

impl Totals {
    /// Returns these counts beside their increase since earlier ones. Other counts begin at 0.
    pub(super) fn since(self, before: Increase) -> Increase {
        Increase {
            admitted: self.admitted,
            denied: self.denied,
            admitted_lately: self.admitted.saturating_sub(before.admitted),
            denied_lately: self.denied.saturating_sub(before.denied),
        }
    }
}

impl Announcement {
    /// Returns the counts of a policy, per second too. Without a period there is no rate yet.
    pub(super) fn units(&self, increase: &Increase) -> Units {
        Units {
            admitted: increase.admitted,
            denied: increase.denied,
            admitted_per_second: self.per_second(increase.admitted_lately),
            denied_per_second: self.per_second(increase.denied_lately),
        }
    }

    fn per_second(&self, units: u64) -> f64 {
        if self.period_millis == 0 {
            return 0.0;
        }
        units as f64 * 1e3 / self.period_millis as f64
    }
}

impl AddAssign for Units {
    fn add_assign(&mut self, other: Self) {
        self.admitted = self.admitted.saturating_add(other.admitted);
        self.denied = self.denied.saturating_add(other.denied);
        self.admitted_per_second += other.admitted_per_second;
        self.denied_per_second += other.denied_per_second;
    }
}

impl From<(u64, u64, u64, u64)> for Increase {
    fn from((admitted, denied, admitted_lately, denied_lately): (u64, u64, u64, u64)) -> Self {
        Self { admitted, denied, admitted_lately, denied_lately }
    }
}

impl From<Increase> for (u64, u64, u64, u64) {
    fn from(from: Increase) -> Self {
        (from.admitted, from.denied, from.admitted_lately, from.denied_lately)
    }
}
