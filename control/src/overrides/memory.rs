//! The audit log of one process.

use std::{
    collections::VecDeque,
    sync::{Mutex, PoisonError},
};

use super::{AuditEntry, Change, audit::MAX_AUDIT, time::from_millis};

/// The audit log of overrides that are kept in memory.
#[derive(Debug, Default)]
pub(super) struct MemoryAudit(Mutex<VecDeque<AuditEntry>>);

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
