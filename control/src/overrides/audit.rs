//! The audit log.

use std::{
    fmt,
    time::{SystemTime, UNIX_EPOCH},
};

use serde::{Deserialize, Serialize};

use super::{Change, entry::redacted};
use crate::time::{from_millis, millis, optional_millis};

/// The number of entries that the audit log keeps.
pub(super) const MAX_AUDIT: usize = 10_000;

/// An entry of the audit log. As JSON, times are milliseconds since the Unix epoch.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct AuditEntry {
    /// The time of the action.
    #[serde(with = "millis")]
    pub time: SystemTime,
    /// The action.
    pub action: AuditAction,
    /// The name of the [policy](plimsoll::Policy).
    pub policy: String,
    /// The key: a digest such as `#1f2e3d4c`, unless [`show_keys`](super::Overrides::show_keys) was called
    /// where the entry was written.
    pub key: Option<String>,
    /// The state before, such as `100/min`.
    pub before: Option<String>,
    /// The state after, such as `500/min`.
    pub after: Option<String>,
    /// The time at which the new state ends.
    #[serde(with = "optional_millis")]
    pub until: Option<SystemTime>,
    /// The [version](super::Override::version) of the override after the action, if it is about one. With it, a
    /// change is undone only while no other one has followed.
    pub version: Option<u64>,
    /// The person or program that did it. From 1 to 128 bytes.
    pub by: String,
    /// The reason for the change. From 1 to 1,000 bytes.
    pub reason: String,
}

/// The action of an [`AuditEntry`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum AuditAction {
    /// An [override](super::Override) was [set](super::Overrides::set).
    Set,
    /// An [override](super::Override) was [removed](super::Overrides::remove).
    Remove,
    /// The spent units of a key were forgotten, by [`Limiter::reset`](plimsoll::Limiter::reset).
    Reset,
    /// A key was blocked without an override.
    Block,
    /// A key was [unblocked](plimsoll::Limiter::unblock).
    Unblock,
}

impl AuditEntry {
    /// Creates an entry about a policy. [`Overrides::record`](super::Overrides::record) sets its time.
    #[must_use]
    pub fn new(action: AuditAction, policy: &str, by: &str, reason: &str) -> Self {
        Self {
            time: UNIX_EPOCH,
            action,
            policy: policy.to_owned(),
            key: None,
            before: None,
            after: None,
            until: None,
            version: None,
            by: by.to_owned(),
            reason: reason.to_owned(),
        }
    }

    /// Describes the change of an override.
    pub(super) fn describe(&mut self, Change { before, after, version, .. }: &Change) {
        self.time = from_millis(version / 1_000);
        self.before = before.as_ref().map(|before| before.kind.to_string());
        self.after = after.as_ref().map(|after| after.kind.to_string());
        self.until = after.as_ref().and_then(|after| after.until);
        self.version = Some(*version);
    }
}

/// Prints no key in the clear.
impl fmt::Debug for AuditEntry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let key = self.key.as_deref().map(redacted);
        let mut f = f.debug_struct("AuditEntry");
        f.field("time", &self.time).field("action", &self.action).field("policy", &self.policy);
        f.field("key", &key).field("by", &self.by).finish_non_exhaustive()
    }
}
