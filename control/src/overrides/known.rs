//! The overrides that this process knows.

use std::sync::Arc;

use super::{
    Change, NewOverride, Override, OverrideError, apply::Entries, entry::new_entry,
    error::MAX_OVERRIDES, redis::Poll, time::to_millis,
};

/// The overrides as this process knows them.
#[derive(Debug, Default)]
pub(super) struct Known {
    pub(super) entries: Arc<Entries>,
    pub(super) version: u64,
    /// The time at which lost overrides were put back.
    pub(super) generation: u64,
    /// The time of the store less that of the clock, in microseconds.
    pub(super) ahead_micros: i64,
    /// The time of the clock when the store answered last, in microseconds.
    pub(super) heard_micros: u64,
    /// The reason for which the store does not answer.
    pub(super) store_error: Option<String>,
    /// The reason for which an override is not applied.
    pub(super) error: Option<String>,
    /// The number of times that this process has put back overrides.
    pub(super) restores: u64,
}

impl Known {
    /// Sets an override by the rules of the script, for overrides in memory.
    pub(super) fn set(
        &mut self,
        field: &str,
        new: &NewOverride,
        now_millis: u64,
    ) -> Result<Change, OverrideError> {
        let before = self.entries.get(field).filter(|it| it.is_in_force(now_millis)).cloned();
        let found = before.as_ref().map_or(0, |it| it.version);
        if let Some(expected) = new.version.filter(|version| *version != found) {
            return Err(OverrideError::Conflict { expected, found });
        }
        if new.until.is_some_and(|until| to_millis(until) <= now_millis) {
            return Err(OverrideError::past());
        }
        if !self.entries.contains_key(field) && self.entries.len() >= MAX_OVERRIDES {
            return Err(OverrideError::TooMany);
        }
        let version = self.next_version(now_millis);
        let after = new_entry(new, version);
        Arc::make_mut(&mut self.entries).insert(field.to_owned(), after.clone());
        Ok(Change { before, after: Some(after), version })
    }

    /// Removes an override, for overrides in memory.
    pub(super) fn remove(&mut self, field: &str, now_millis: u64) -> Result<Change, OverrideError> {
        let before = Arc::make_mut(&mut self.entries).remove(field);
        let before = before.filter(|it| it.is_in_force(now_millis));
        let before = Some(before.ok_or(OverrideError::NotFound)?);
        Ok(Change { before, after: None, version: self.next_version(now_millis) })
    }

    /// Takes over a change of the store, if it is the only one since the known version. Returns whether it
    /// was.
    pub(super) fn take(&mut self, field: &str, previous: u64, change: &Change) -> bool {
        self.store_error = None;
        if self.version != previous {
            return false;
        }
        let entries = Arc::make_mut(&mut self.entries);
        match &change.after {
            Some(after) => drop(entries.insert(field.to_owned(), after.clone())),
            None => drop(entries.remove(field)),
        }
        self.version = change.version;
        true
    }

    /// Notes the time of the store, and the time of the clock at which it arrived.
    pub(super) fn hear(&mut self, now_micros: u64, clock_micros: u64) {
        self.ahead_micros = now_micros as i64 - clock_micros as i64;
        self.heard_micros = clock_micros;
    }

    /// Takes over what the store has answered.
    pub(super) fn follow(&mut self, poll: Poll) {
        self.generation = poll.generation;
        if let Some(entries) = poll.entries {
            (self.entries, self.version) = (Arc::new(entries), poll.version);
        }
        self.forget_ended(poll.now_micros / 1_000);
    }

    /// Forgets the overrides that have ended.
    pub(super) fn forget_ended(&mut self, now_millis: u64) {
        if self.entries.values().any(|entry| !entry.is_in_force(now_millis)) {
            Arc::make_mut(&mut self.entries).retain(|_, entry| entry.is_in_force(now_millis));
        }
    }

    /// Returns the overrides that have ended, by their fields and versions.
    pub(super) fn ended(&self, now_millis: u64) -> Vec<(String, u64)> {
        let ended = self.entries.iter().filter(|(_, entry)| !entry.is_in_force(now_millis));
        ended.map(|(field, entry)| (field.clone(), entry.version)).collect()
    }

    /// Versions are times, so that they grow even after the store has lost its data.
    fn next_version(&mut self, now_millis: u64) -> u64 {
        self.version = (self.version + 1).max(now_millis * 1_000);
        self.version
    }
}

impl Override {
    /// Returns whether the override applies at this time.
    pub(super) fn is_in_force(&self, now_millis: u64) -> bool {
        self.until.is_none_or(|until| now_millis < to_millis(until))
    }
}
