//! The overrides that this process knows.

use std::sync::Arc;

use super::{
    Change, NewOverride, Override, OverrideError,
    apply::Entries,
    entry::{Mark, Marks, new_entry},
    error::MAX_OVERRIDES,
    redis::{Poll, Restored},
    report,
    time::to_millis,
};

/// The time for which a removal is known. The script has it too.
const MARK_TTL_MILLIS: u64 = 7 * 86_400_000;

/// The overrides as this process knows them.
#[derive(Debug, Default)]
pub(super) struct Known {
    pub(super) entries: Arc<Entries>,
    pub(super) marks: Arc<Marks>,
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
    /// The number of overrides that this process could not decide about when it put back others.
    pub(super) undecided: u64,
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
        Ok(Change { before, after: Some(after), version, ..Change::default() })
    }

    /// Removes an override, for overrides in memory.
    pub(super) fn remove(
        &mut self,
        field: &str,
        expected: Option<u64>,
        now_millis: u64,
    ) -> Result<Change, OverrideError> {
        let before = self.entries.get(field).filter(|it| it.is_in_force(now_millis)).cloned();
        let before = before.ok_or(OverrideError::NotFound)?;
        if let Some(expected) = expected.filter(|version| *version != before.version) {
            return Err(OverrideError::Conflict { expected, found: before.version });
        }
        Arc::make_mut(&mut self.entries).remove(field);
        let before = Some(before);
        let version = self.next_version(now_millis);
        Ok(Change { before, version, ..Change::default() })
    }

    /// Takes over a change of the store, if it is the only one since the known version. Returns whether it
    /// was.
    pub(super) fn take(&mut self, field: &str, previous: u64, change: &Change) -> bool {
        self.set_store_error(None);
        if self.version != previous {
            return false;
        }
        self.put(field, change);
        self.version = change.version;
        true
    }

    /// Takes over a change, while others may be unknown.
    pub(super) fn put(&mut self, field: &str, change: &Change) {
        let (entries, marks) = (Arc::make_mut(&mut self.entries), Arc::make_mut(&mut self.marks));
        if let Some(after) = &change.after {
            entries.insert(field.to_owned(), after.clone());
            marks.remove(field);
            return;
        }
        entries.remove(field);
        if marks.len() < MAX_OVERRIDES {
            let until_millis = change.version / 1_000 + MARK_TTL_MILLIS;
            marks.insert(field.to_owned(), Mark { version: change.version, until_millis });
        }
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

    /// Notes that this process has put back overrides.
    pub(super) fn set_restored(&mut self, restored: &Restored) {
        self.restores += 1;
        report::restored(restored.count);
        if restored.undecided > 0 {
            self.undecided += restored.undecided;
            report::undecided(restored.undecided);
        }
    }

    /// Notes the time of the store, and the time of the clock at which it arrived.
    pub(super) fn hear(&mut self, now_micros: u64, clock_micros: u64) {
        self.ahead_micros = now_micros as i64 - clock_micros as i64;
        self.heard_micros = clock_micros;
    }

    /// Takes over what the store has answered.
    pub(super) fn follow(&mut self, poll: Poll) {
        self.generation = poll.generation;
        match poll.changed {
            // What has ended meanwhile is removed by the next poll.
            Some((entries, marks)) => {
                (self.entries, self.marks) = (Arc::new(entries), Arc::new(marks));
                self.version = poll.version;
            }
            None => self.forget_ended(poll.now_micros / 1_000),
        }
    }

    /// Forgets the overrides that have ended.
    pub(super) fn forget_ended(&mut self, now_millis: u64) {
        if self.entries.values().any(|entry| !entry.is_in_force(now_millis)) {
            Arc::make_mut(&mut self.entries).retain(|_, entry| entry.is_in_force(now_millis));
        }
        if self.marks.values().any(|mark| mark.until_millis <= now_millis) {
            Arc::make_mut(&mut self.marks).retain(|_, mark| now_millis < mark.until_millis);
        }
    }

    /// Returns the overrides and marks that have ended, by their fields and versions.
    pub(super) fn ended(&self, now_millis: u64) -> Vec<(String, u64)> {
        let ended = self.entries.iter().filter(|(_, entry)| !entry.is_in_force(now_millis));
        let ended = ended.map(|(field, entry)| (field.clone(), entry.version));
        let marks = self.marks.iter().filter(|(_, mark)| mark.until_millis <= now_millis);
        ended.chain(marks.map(|(field, mark)| (field.clone(), mark.version))).collect()
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
