//! The overrides that this process knows.

use std::sync::Arc;

use super::{
    Change, OverrideError,
    entry::{Edit, Entries},
    error::MAX_OVERRIDES,
    redis::Poll,
    report,
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
        if self.version != previous {
            // The next poll reports it.
            self.has_lost |= previous < self.version;
            return false;
        }
        self.put(field, change);
        self.version = change.version;
        true
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

    /// Notes why the store does not answer, or that it does.
    pub(super) fn set_store_error(&mut self, error: Option<String>) {
        report::store(self.store_error.as_deref(), error.as_deref());
        self.store_error = error;
    }

    /// Notes why an override is not applied, or that all are.
    pub(super) fn set_error(&mut self, error: Option<String>) {
        report::applied(self.error.as_deref(), error.as_deref());
        self.error = error;
    }

    /// Takes over what the store has answered at this time of the clock. The poll has named the overrides that had
    /// ended at `asked_millis`. Returns whether the store had lost changes.
    pub(super) fn follow(&mut self, poll: Poll, clock_micros: u64, asked_millis: u64) -> bool {
        self.ahead_micros = poll.now_micros as i64 - clock_micros as i64;
        self.last_reply_micros = clock_micros;
        let now_millis = poll.now_micros / 1_000;
        let is_another = ![0, poll.epoch].contains(&self.epoch);
        self.epoch = poll.epoch;
        // The next poll removes the overrides that have ended meanwhile.
        let Some(entries) = poll.changed else {
            // One that has ended since was not named, and is removed by the next poll.
            self.forget_ended(asked_millis);
            return false;
        };
        let is_older = self.has_lost || poll.version < self.version || is_another;
        if is_older {
            let known = self.entries.iter().filter(|(_, entry)| entry.is_in_force(now_millis));
            self.lost.extend(known.map(|(field, entry)| (field.clone(), entry.clone())));
        }
        self.lost.retain(|field, lost| {
            let is_back = entries.get(field).is_some_and(|it| it.version >= lost.version);
            !is_back && lost.is_in_force(now_millis)
        });
        self.losses += u64::from(is_older);
        self.entries = Arc::new(entries);
        (self.version, self.has_lost) = (poll.version, false);
        is_older
    }

    /// Forgets the overrides that have ended.
    pub(super) fn forget_ended(&mut self, now_millis: u64) {
        if self.entries.values().any(|entry| !entry.is_in_force(now_millis)) {
            Arc::make_mut(&mut self.entries).retain(|_, entry| entry.is_in_force(now_millis));
        }
        self.lost.retain(|_, lost| lost.is_in_force(now_millis));
    }

    /// Returns the overrides that have ended, by their fields and versions.
    pub(super) fn ended(&self, now_millis: u64) -> Vec<(String, u64)> {
        let ended = self.entries.iter().filter(|(_, entry)| !entry.is_in_force(now_millis));
        ended.map(|(field, entry)| (field.clone(), entry.version)).collect()
    }
}
