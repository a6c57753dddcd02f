//! The audit log of one process.

use std::{
    collections::VecDeque,
    sync::{Mutex, PoisonError},
};

use super::AuditEntry;

/// The audit log of overrides that are kept in memory.
#[derive(Debug, Default)]
pub(super) struct MemoryAudit(Mutex<VecDeque<AuditEntry>>);

impl MemoryAudit {
    pub(super) fn push(&self, entry: AuditEntry, max: usize) {
        let mut entries = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if entries.len() >= max {
            entries.pop_front();
        }
        entries.push_back(entry);
    }

    /// Returns the newest entries, the newest first.
    pub(super) fn newest(&self, count: usize) -> Vec<AuditEntry> {
        let entries = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        entries.iter().rev().take(count).cloned().collect()
    }
}
