//! The audit log.

use std::{
    collections::VecDeque,
    fmt,
    sync::{Mutex, PoisonError},
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
    /// The name of the policy.
    pub policy: String,
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
}

/// The audit log of overrides that are kept in memory.
#[derive(Debug, Default)]
pub(super) struct MemoryAudit(Mutex<VecDeque<AuditEntry>>);

impl AuditEntry {
    /// Creates an entry about a policy. Its time is set when it is added to the log.
    #[must_use]
    pub fn new(
        action: AuditAction,
        policy: impl Into<String>,
        by: impl Into<String>,
        reason: impl Into<String>,
    ) -> Self {
        Self {
            time: UNIX_EPOCH,
            action,
            policy: policy.into(),
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

impl MemoryAudit {
    /// Adds an entry about a change.
    pub(super) fn push_change(&self, mut entry: AuditEntry, change: &Change) {
        entry.before = change.before.as_ref().map(|before| before.kind.to_string());
        entry.version = Some(change.version);
        self.push(entry, change.version / 1_000);
    }

    pub(super) fn push(&self, entry: AuditEntry, now_millis: u64) {
        let mut entries = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if entries.len() >= MAX_AUDIT {
            entries.pop_front();
        }
        entries.push_back(AuditEntry { time: from_millis(now_millis), ..entry });
    }

    /// Returns the newest entries, the newest first.
    pub(super) fn newest(&self, count: usize) -> Vec<AuditEntry> {
        let entries = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        entries.iter().rev().take(count).cloned().collect()
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

impl fmt::Display for AuditAction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Set => "set",
            Self::Remove => "remove",
            Self::Reset => "reset",
            Self::Block => "block",
            Self::Unblock => "unblock",
        })
    }
}
