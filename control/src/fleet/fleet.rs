//! The instances that announce themselves, and the sums over them.

use std::{collections::BTreeMap, time::SystemTime};

use serde::Serialize;

use super::{Announcement, Units};
use crate::time::{from_millis, millis};

/// The most policies of a fleet. Instances of one service have the same ones, except during a change.
const MAX_POLICIES: usize = 256;

/// The instances of a service, and the units that they admit and deny together. [`Overrides::fleet`] returns it.
///
/// [`Overrides::fleet`]: crate::Overrides::fleet
#[derive(Debug, Clone, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Fleet {
    /// The time of Redis.
    #[serde(with = "millis")]
    pub time: SystemTime,
    /// The reason for which the fleet is not complete: only this instance is known, or the others do not know it.
    pub error: Option<String>,
    /// The instances, the oldest first.
    pub instances: Vec<Instance>,
    /// The sums over the instances by policy, in the order of their names.
    pub policies: Vec<PolicyUnits>,
}

/// An instance of a [`Fleet`], as it has announced itself.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Instance {
    /// A random identifier, which is another one after a restart.
    pub id: String,
    /// True for the instance that answers.
    pub is_this: bool,
    /// The [version](crate::OverridesConfig::version).
    pub version: String,
    /// The time of its start, by the clock of Redis.
    #[serde(with = "millis")]
    pub since: SystemTime,
    /// The time of its last announcement, by the clock of Redis.
    #[serde(with = "millis")]
    pub last_seen: SystemTime,
    /// The units of all its policies.
    #[serde(flatten)]
    pub units: Units,
    #[serde(skip)]
    announcement: Announcement,
}

/// The units of a policy, of all instances of a [`Fleet`].
#[derive(Debug, Clone, PartialEq, Serialize)]
#[non_exhaustive]
pub struct PolicyUnits {
    /// The name of the policy.
    pub policy: String,
    /// The units of all instances.
    #[serde(flatten)]
    pub units: Units,
}

impl Instance {
    pub(crate) fn new(id: String, seen_millis: u64, announcement: Announcement) -> Self {
        let mut units = Units::default();
        for increase in announcement.policies.values() {
            units += announcement.units(increase);
        }
        Self {
            id,
            is_this: false,
            version: announcement.version.clone(),
            since: from_millis(seen_millis.saturating_sub(announcement.uptime_millis)),
            last_seen: from_millis(seen_millis),
            units,
            announcement,
        }
    }
}

impl Fleet {
    /// Creates the sums over these instances. The instance with the identifier `this` answers.
    pub(crate) fn new(this: &str, now_millis: u64, mut instances: Vec<Instance>) -> Self {
        let mut policies = BTreeMap::<String, Units>::new();
        for instance in &mut instances {
            instance.is_this = instance.id == this;
            for (policy, increase) in &instance.announcement.policies {
                if policies.len() < MAX_POLICIES || policies.contains_key(policy) {
                    let units = instance.announcement.units(increase);
                    *policies.entry(policy.clone()).or_default() += units;
                }
            }
        }
        instances.sort_by(|a, b| (a.since, &a.id).cmp(&(b.since, &b.id)));
        let policies = policies.into_iter().map(|(policy, units)| PolicyUnits { policy, units });
        let time = from_millis(now_millis);
        Self { time, error: None, instances, policies: policies.collect() }
    }
}
