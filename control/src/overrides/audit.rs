//! The audit log.

use std::{
    fmt,
    time::{SystemTime, UNIX_EPOCH},
};

use serde::{Deserialize, Serialize};

use super::{
    entry::redacted,
    time::{millis, optional_millis},
};

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
    /// The name of the policy.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub policy: Option<String>,
    /// The key: a digest such as `#1f2e3d4c`, unless [`show_keys`](super::Overrides::show_keys) was called
    /// where the entry was written.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,
    /// The state before, such as `100/min`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub before: Option<String>,
    /// The state after, such as `500/min`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub after: Option<String>,
    /// The time at which the new state ends.
    #[serde(default, with = "optional_millis", skip_serializing_if = "Option::is_none")]
    pub until: Option<SystemTime>,
    /// The [version](super::Override::version) of the override after the action, if it is about one. With it, a
    /// change is undone only while no other one has followed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub version: Option<u64>,
    /// The person or program that did it.
    pub by: String,
    /// The reason for the change.
    pub reason: String,
}

/// The action of an [`AuditEntry`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum AuditAction {
    /// An override was set.
    Set,
    /// An override was removed.
    Remove,
    /// The spent units of a key were forgotten.
    Reset,
    /// A key was blocked without an override.
    Block,
    /// A key was unblocked.
    Unblock,
    /// Redis had lost overrides, and an instance that knew them has put them back.
    Restore,
    /// Redis had lost changes, and it is not known whether overrides are lost, or are in force although they
    /// were removed.
    Loss,
}

/// An action that is not an override, for the audit log.
#[derive(Clone)]
pub struct NewAuditEntry {
    /// The action.
    pub action: AuditAction,
    /// The name of a policy of the registry.
    pub policy: String,
    /// The key, as an operator writes it.
    pub key: Option<String>,
    /// The state before, such as `12 units spent`.
    pub before: Option<String>,
    /// The state after.
    pub after: Option<String>,
    /// The person or program that did it. From 1 to 128 bytes.
    pub by: String,
    /// The reason for the change. From 1 to 1,000 bytes.
    pub reason: String,
}

impl AuditEntry {
    /// Creates an entry about no policy. Its time is set when it is added to the log.
    pub(super) fn new(
        action: AuditAction,
        by: impl Into<String>,
        reason: impl Into<String>,
    ) -> Self {
        Self {
            time: UNIX_EPOCH,
            action,
            policy: None,
            key: None,
            before: None,
            after: None,
            until: None,
            version: None,
            by: by.into(),
            reason: reason.into(),
        }
    }
}

impl fmt::Debug for AuditEntry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AuditEntry")
            .field("time", &self.time)
            .field("action", &self.action)
            .field("policy", &self.policy)
            .field("key", &self.key.as_deref().map(redacted))
            .field("before", &self.before)
            .field("after", &self.after)
            .field("until", &self.until)
            .field("version", &self.version)
            .field("by", &self.by)
            .field("reason", &self.reason)
            .finish()
    }
}

impl fmt::Debug for NewAuditEntry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("NewAuditEntry")
            .field("action", &self.action)
            .field("policy", &self.policy)
            .field("key", &self.key.as_deref().map(redacted))
            .field("before", &self.before)
            .field("after", &self.after)
            .field("by", &self.by)
            .field("reason", &self.reason)
            .finish()
    }
}

impl fmt::Display for AuditAction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Set => "set",
            Self::Remove => "remove",
            Self::Reset => "reset",
            Self::Block => "block",
            Self::Unblock => "unblock",
            Self::Restore => "restore",
            Self::Loss => "loss",
        })
    }
}
