//! The limit that is in force, with its source.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::{Override, OverrideKind};
use crate::{Registered, Source};

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
