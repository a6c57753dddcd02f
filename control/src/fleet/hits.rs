//! The units that the fleet has admitted and denied, hour by hour, and the hit rates that follow from them.

use std::{collections::BTreeMap, time::SystemTime};

use serde::Serialize;

use super::Announcement;
use crate::{
    offenders::Totals,
    time::{from_millis, millis},
};

/// The hours that are kept: eight days, so that the first hour of a policy can be seen to be more than a week ago.
pub(crate) const KEPT_HOURS: u64 = 8 * 24;

/// The hours before the running one in each span.
const LAST_HOUR: u64 = 1;
const LAST_DAY: u64 = 24;
const LAST_WEEK: u64 = 7 * 24;

const HOUR_MILLIS: u64 = 3_600_000;

/// The share of denied units above which a limit is too strict, and below which it protects from nothing.
const TOO_STRICT: f64 = 0.05;
const PROTECTS_NOTHING: f64 = 0.001;

/// The least units from which a share below [`PROTECTS_NOTHING`] follows. Of fewer units, one is more.
const MIN_UNITS: u64 = 1_000;

/// The units of each policy in the last [hours](KEPT_HOURS), by the number of the hour since the Unix epoch.
#[derive(Debug, Default)]
pub(crate) struct Hours(BTreeMap<u64, BTreeMap<String, Totals>>);

/// The share of the units of each policy that was denied: its hit rate. [`Overrides::hit_rates`] returns it.
///
/// All instances add their units, once a second, to sums for each hour of the clock of Redis. The sums are kept for eight
/// days, also while no instance runs. Units are counted as in [`Fleet`](super::Fleet).
///
/// [`Overrides::hit_rates`]: crate::Overrides::hit_rates
#[derive(Debug, Clone, PartialEq, Serialize)]
#[non_exhaustive]
pub struct HitRates {
    /// The time of Redis.
    #[serde(with = "millis")]
    pub time: SystemTime,
    /// True if the sums are in this process, and are lost when it ends.
    pub is_of_process: bool,
    /// The policies that have charged a request, in the order of their names.
    pub policies: Vec<HitRate>,
}

/// The hit rate of a policy: see [`HitRates`].
#[derive(Debug, Clone, PartialEq, Serialize)]
#[non_exhaustive]
pub struct HitRate {
    /// The name of the policy.
    pub policy: String,
    /// The start of the first hour with units of the policy, of the last eight days.
    #[serde(with = "millis")]
    pub first: SystemTime,
    /// The units of the running hour and of the one before.
    pub hour: Hits,
    /// The units of the running hour and of the 24 before.
    pub day: Hits,
    /// The units of the running hour and of seven days before.
    pub week: Hits,
    /// True if the policy was charged seven days ago already, and has denied nothing since then.
    pub never_denies: bool,
}

/// The units of a policy in a time.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Hits {
    /// The start of the first hour.
    #[serde(with = "millis")]
    pub since: SystemTime,
    /// The units of admitted checks.
    pub admitted: u64,
    /// The units of denied charges.
    pub denied: u64,
    /// The share that was denied, from 0 to 1, or `None` without units.
    pub share: Option<f64>,
    /// The mark that the share reaches.
    pub mark: Option<HitMark>,
}

/// A hit rate that asks for another limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum HitMark {
    /// More than 5 % of the units are denied: the limit is too strict.
    TooStrict,
    /// Fewer than 0.1 % of at least 1,000 units are denied: the limit protects from nothing.
    ProtectsNothing,
}

impl Hours {
    pub(crate) fn new(hours: impl IntoIterator<Item = (u64, BTreeMap<String, Totals>)>) -> Self {
        Self(hours.into_iter().collect())
    }

    /// Adds units to the hour of this time, and forgets hours that are too long ago.
    pub(crate) fn add(&mut self, now_millis: u64, units: &BTreeMap<String, Totals>) {
        let now_hour = now_millis / HOUR_MILLIS;
        self.0.retain(|hour, _| hour + KEPT_HOURS > now_hour);
        if units.is_empty() {
            return;
        }
        let hour = self.0.entry(now_hour).or_default();
        for (policy, new) in units {
            let sum = hour.entry(policy.clone()).or_default();
            *sum = sum.plus(*new);
        }
    }

    /// Returns the hit rates at this time.
    pub(crate) fn rates(&self, now_millis: u64, is_of_process: bool) -> HitRates {
        let now_hour = now_millis / HOUR_MILLIS;
        let mut policies = BTreeMap::new();
        for (hour, units) in self.0.range(..=now_hour) {
            for (policy, units) in units {
                // Hours are in their order, so the first one stays.
                let (_, sums) = policies.entry(policy).or_insert((*hour, [Totals::default(); 3]));
                for (sum, hours) in sums.iter_mut().zip([LAST_HOUR, LAST_DAY, LAST_WEEK]) {
                    if hour + hours >= now_hour {
                        *sum = sum.plus(*units);
                    }
                }
            }
        }
        let policies = policies.into_iter().map(|(policy, (first, [hour, day, week]))| {
            let since = |hours: u64| from_millis(now_hour.saturating_sub(hours) * HOUR_MILLIS);
            let is_of_week = first + LAST_WEEK <= now_hour;
            HitRate {
                policy: policy.clone(),
                first: from_millis(first * HOUR_MILLIS),
                hour: Hits::new(since(LAST_HOUR), hour),
                day: Hits::new(since(LAST_DAY), day),
                week: Hits::new(since(LAST_WEEK), week),
                never_denies: is_of_week && week.admitted > 0 && week.denied == 0,
            }
        });
        let time = from_millis(now_millis);
        HitRates { time, is_of_process, policies: policies.collect() }
    }
}

impl Hits {
    fn new(since: SystemTime, Totals { admitted, denied }: Totals) -> Self {
        let all = admitted.saturating_add(denied);
        let share = (all > 0).then(|| denied as f64 / all as f64);
        let mark = share.and_then(|share| match share {
            _ if share > TOO_STRICT => Some(HitMark::TooStrict),
            _ if share < PROTECTS_NOTHING && all >= MIN_UNITS => Some(HitMark::ProtectsNothing),
            _ => None,
        });
        Self { since, admitted, denied, share, mark }
    }
}

impl Totals {
    fn plus(self, other: Self) -> Self {
        Self {
            admitted: self.admitted.saturating_add(other.admitted),
            denied: self.denied.saturating_add(other.denied),
        }
    }
}

/// The counts of this process that are in the sums already.
#[derive(Debug, Default)]
pub(crate) struct Added(BTreeMap<String, Totals>);

impl Added {
    /// Returns the units of an announcement that are not in the sums.
    pub(crate) fn new_units(&self, announcement: &Announcement) -> BTreeMap<String, Totals> {
        let counts = announcement.policies.iter().map(|(policy, counts)| {
            let now = Totals { admitted: counts.admitted, denied: counts.denied };
            let before = self.0.get(policy).copied().unwrap_or_default();
            // Counts that are lower begin at 0: they are of other offenders.
            let is_next = now.admitted >= before.admitted && now.denied >= before.denied;
            let before = if is_next { before } else { Totals::default() };
            let new = Totals {
                admitted: now.admitted - before.admitted,
                denied: now.denied - before.denied,
            };
            (policy.clone(), new)
        });
        counts.filter(|(_, new)| *new != Totals::default()).collect()
    }

    /// Records that the units of an announcement are in the sums.
    pub(crate) fn set(&mut self, announcement: &Announcement) {
        let counts = announcement.policies.iter().map(|(policy, counts)| {
            (policy.clone(), Totals { admitted: counts.admitted, denied: counts.denied })
        });
        self.0 = counts.collect();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn units(admitted: u64, denied: u64) -> BTreeMap<String, Totals> {
        BTreeMap::from([("api".to_owned(), Totals { admitted, denied })])
    }

    #[test]
    fn units_count_in_the_spans_of_their_hour() {
        let mut hours = Hours::default();
        let now = 1_000_000 * HOUR_MILLIS;
        // The hours before the running one, the admitted and the denied units.
        let added =
            [(191, 0, 9), (168, 1, 0), (25, 2, 0), (24, 4, 0), (2, 8, 0), (1, 16, 0), (0, 32, 1)];
        for (ago, admitted, denied) in added {
            hours.add(now - ago * HOUR_MILLIS, &units(admitted, denied));
        }
        let rates = hours.rates(now + HOUR_MILLIS - 1, false);
        let rate = &rates.policies[0];
        let sums = [rate.hour, rate.day, rate.week].map(|hits| (hits.admitted, hits.denied));
        assert_eq!(sums, [(48, 1), (60, 1), (63, 1)]);
        assert_eq!(rate.hour.since, from_millis(now - HOUR_MILLIS));
        assert_eq!(rate.first, from_millis(now - 191 * HOUR_MILLIS));
        assert!((rate.hour.share.unwrap() - 1.0 / 49.0).abs() < 1e-9);
        assert!(!rate.never_denies);
        // Hours that are too long ago are forgotten.
        hours.add(now + HOUR_MILLIS, &BTreeMap::new());
        let rates = hours.rates(now + HOUR_MILLIS, false);
        assert_eq!(rates.policies[0].first, from_millis(now - 168 * HOUR_MILLIS));
        assert_eq!(hours.0.len(), added.len() - 1);
    }

    #[test]
    fn marks_follow_the_share() {
        let mark = |admitted, denied| Hits::new(from_millis(0), Totals { admitted, denied }).mark;
        assert_eq!(mark(0, 0), None);
        assert_eq!((mark(95, 5), mark(94, 6)), (None, Some(HitMark::TooStrict)));
        assert_eq!((mark(999, 1), mark(9_999, 9)), (None, Some(HitMark::ProtectsNothing)));
        assert_eq!((mark(999, 0), mark(1_000, 0)), (None, Some(HitMark::ProtectsNothing)));
    }

    #[test]
    fn only_a_policy_of_a_week_never_denies() {
        let now = 1_000_000 * HOUR_MILLIS;
        for (ago, denied, never) in [(168, 0, true), (167, 0, false), (168, 1, false)] {
            let mut hours = Hours::default();
            hours.add(now - ago * HOUR_MILLIS, &units(5, 0));
            hours.add(now, &units(5, denied));
            assert_eq!(hours.rates(now, false).policies[0].never_denies, never, "{ago} {denied}");
        }
    }
}
