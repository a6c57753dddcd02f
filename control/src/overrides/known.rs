//! The overrides that this process knows.

use std::sync::Arc;

use super::{
    Change, OverrideError,
    entry::{Edit, Entries},
    error::MAX_OVERRIDES,
    redis::Poll,
};
use crate::time::to_millis;

/// The overrides as this process knows them.
#[derive(Debug, Default)]
pub(super) struct Known {
    pub(super) entries: Arc<Entries>,
    pub(super) version: u64,
    /// The time at which the store began to keep overrides, or 0 if it is not known.
    pub(super) epoch: u64,
    /// True if a change has shown that the store had lost others.
    pub(super) has_lost: bool,
    /// True if an override has ended since the last poll that has read all of them. The script removes it then.
    pub(super) has_ended: bool,
    /// The time of the store less the time of the clock, in microseconds.
    pub(super) ahead_micros: i64,
    /// The time of the clock when the store answered last, in microseconds.
    pub(super) last_reply_micros: u64,
    /// The reason for which the store does not answer.
    pub(super) store_error: Option<String>,
    /// The reason for which an override is not applied.
    pub(super) error: Option<String>,
    /// The number of times that the store had lost changes that this process knew.
    pub(super) losses: u64,
    /// The overrides that the store has lost. Ended ones, and those that were set again, are none.
    pub(super) lost: Entries,
}

impl Known {
    /// Changes an override by the rules of the script, for overrides in memory.
    pub(super) fn change(
        &mut self,
        field: &str,
        edit: Edit<'_>,
        now_millis: u64,
    ) -> Result<Change, OverrideError> {
        let before = self.entries.get(field).filter(|it| it.is_in_force(now_millis)).cloned();
        let found = before.as_ref().map_or(0, |it| it.version);
        if let (Edit::Remove(_), None) = (edit, &before) {
            return Err(OverrideError::NotFound);
        }
        if let Some(expected) = edit.expected().filter(|version| *version != found) {
            return Err(OverrideError::Conflict { expected, found });
        }
        // Versions are times, so that they grow even after the store has lost its data.
        let version = (self.version + 1).max(now_millis * 1_000);
        let after = match edit {
            Edit::Remove(_) => None,
            Edit::Set(new) if new.until.is_some_and(|until| to_millis(until) <= now_millis) => {
                return Err(OverrideError::past());
            }
            Edit::Set(_)
                if !self.entries.contains_key(field) && self.entries.len() >= MAX_OVERRIDES =>
            {
                return Err(OverrideError::TooMany);
            }
            Edit::Set(new) => Some(new.at(version)),
        };
        let change = Change { before, after, version, ..Change::default() };
        self.put(field, &change);
        self.version = version;
        Ok(change)
    }

    /// Takes over a change of the store, if it is the only one since the known version. Returns whether it
    /// was.
    pub(super) fn take(&mut self, field: &str, previous: u64, change: &Change) -> bool {
        self.set_store_error(None);
        let is_only = self.version == previous;
        // The store had lost the known version before this change. The next poll reports it.
        self.has_lost |= previous < self.version && self.version < change.version;
        if is_only {
            self.put(field, change);
            self.version = change.version;
        }
        is_only
    }

    /// Takes over a change, while others may be unknown.
    pub(super) fn put(&mut self, field: &str, change: &Change) {
        let entries = Arc::make_mut(&mut self.entries);
        match &change.after {
            Some(after) => drop(entries.insert(field.to_owned(), after.clone())),
            None => drop(entries.remove(field)),
        }
        self.lost.remove(field);
    }

    /// Notes why the store does not answer, or that it does. The log has a line when that begins and when it ends.
    pub(super) fn set_store_error(&mut self, error: Option<String>) {
        match (&self.store_error, &error) {
            (None, Some(error)) => tracing::warn!(
                target: "plimsoll",
                "the overrides stay as they are, and cannot be changed: {error}"
            ),
            (Some(_), None) => {
                tracing::info!(target: "plimsoll", "Redis answers: the overrides are followed again");
            }
            _ => {}
        }
        self.store_error = error;
    }

    /// Notes why an override is not applied, or that all are. The log has a line when that begins and when it ends.
    pub(super) fn set_error(&mut self, error: Option<String>) {
        match (&self.error, &error) {
            (None, Some(error)) => {
                tracing::warn!(target: "plimsoll", "an override is not applied here: {error}");
            }
            (Some(_), None) => {
                tracing::info!(target: "plimsoll", "all overrides are applied again")
            }
            _ => {}
        }
        self.error = error;
    }

    /// Returns the version that a poll compares with the store's. If an override has ended, it is a version that no store
    /// has, so that the store sends all overrides.
    pub(super) fn version_to_ask(&self) -> u64 {
        if self.has_ended { u64::MAX } else { self.version }
    }

    /// Takes over what the store has answered at this time of the clock. Returns whether it had lost changes.
    pub(super) fn follow(&mut self, poll: Poll, clock_micros: u64) -> bool {
        self.ahead_micros = poll.now_micros as i64 - clock_micros as i64;
        self.last_reply_micros = clock_micros;
        let is_another = ![0, poll.epoch].contains(&self.epoch);
        self.epoch = poll.epoch;
        let Some(entries) = poll.changed else { return false };
        let is_older = self.has_lost || poll.version < self.version || is_another;
        if is_older {
            self.losses += 1;
            let known = self.entries.iter().map(|(field, entry)| (field.clone(), entry.clone()));
            self.lost.extend(known);
        }
        self.lost.retain(|field, lost| {
            entries.get(field).is_none_or(|entry| entry.version < lost.version)
        });
        self.entries = Arc::new(entries);
        self.version = poll.version;
        self.forget_ended(poll.now_micros / 1_000);
        (self.has_ended, self.has_lost) = (false, false);
        is_older
    }

    /// Forgets the overrides that have ended.
    pub(super) fn forget_ended(&mut self, now_millis: u64) {
        if self.entries.values().any(|entry| !entry.is_in_force(now_millis)) {
            Arc::make_mut(&mut self.entries).retain(|_, entry| entry.is_in_force(now_millis));
            self.has_ended = true;
        }
        self.lost.retain(|_, lost| lost.is_in_force(now_millis));
    }
}
