//! The effect of a request: the override and the limit in force, before and after.

use serde::{Deserialize, Serialize};

use super::Override;

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
    /// The limit that was in force before: a quota such as `100/min`, `off`, or `block`. `None` if this process does
    /// not have the policy.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub in_force_before: Option<String>,
    /// The limit that is in force after.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub in_force_after: Option<String>,
    /// The reason for which this instance could not apply the change yet. It is stored, other instances apply
    /// it, and this one tries again each second.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub not_applied: Option<String>,
    /// The warning that no instance of the service has read the change within 2 s. Only a
    /// [passive](super::OverridesConfig::passive) process waits for one: another one is an instance itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unread: Option<String>,
}
