//! The effect of a request: the override and the limit in force, before and after.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::{Override, OverrideKind};
use crate::{Registered, Source};

/// The effect of a request.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Change {
    /// The override before.
    pub before: Option<Override>,
    /// The override after.
    pub after: Option<Override>,
    /// The version of the change.
    pub version: u64,
    /// The limit that was in force before: that of an override, or the configured one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub in_force_before: Option<InForce>,
    /// The limit that is in force after.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub in_force_after: Option<InForce>,
    /// The reason for which this instance could not apply the change yet. It is stored, other instances apply
    /// it, and this one tries again each second.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub not_applied: Option<String>,
    /// The warning that no instance of the service has read the change within 2 s. Only a
    /// [passive](super::OverridesConfig::passive) process waits for one: another one is an instance itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unread: Option<String>,
}

/// The limit in force for a policy, or for one key under it. A [`Change`](super::Change) has the ones before
/// and after.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct InForce {
    /// A quota such as `100/min`, `off`, or `block`.
    pub limit: String,
    /// The [source](Source) of the limit: `code`, the path of a file, or `override`.
    pub source: String,
}

impl InForce {
    /// Returns the limit in force under the overrides of the policy and the key. Returns `None` if there are
    /// none, and the policy is unknown here.
    pub(super) fn under(
        registered: Option<&Registered>,
        of_policy: Option<&Override>,
        of_key: Option<&Override>,
    ) -> Option<Self> {
        // A policy that is switched off limits no key.
        let off = of_policy.filter(|entry| entry.kind == OverrideKind::Off);
        let (limit, source) = match off.or(of_key).or(of_policy) {
            Some(entry) => (entry.kind.to_string(), Source::Override),
            None => {
                let (quota, source) = registered?.configured();
                (quota.to_string(), source)
            }
        };
        Some(Self { limit, source: source.to_string() })
    }
}

impl fmt::Display for InForce {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({})", self.limit, self.source)
    }
}
