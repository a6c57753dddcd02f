//! The overrides that this process knows.

use std::{mem::take, sync::Arc};

use super::{Change, Override, OverrideError, entry::Entries, error::MAX_OVERRIDES};
use crate::time::to_millis;

/// The overrides as this process knows them.
#[derive(Debug, Default)]
pub(super) struct Known {
    /// The overrides. Those that have ended are among them until the next edit.
    pub(super) entries: Arc<Entries>,
    pub(super) version: u64,
    /// The version of the first change in Redis, or 0 if it is not known.
    epoch: u64,
    /// The time of Redis less the time of the clock, in microseconds.
    pub(super) ahead_micros: i64,
    /// The time of the clock when Redis answered last, in microseconds. `None` for overrides in memory.
    pub(super) last_reply_micros: Option<u64>,
    /// The reason for which Redis does not answer.
    pub(super) store_error: Option<String>,
    /// The reason for which an override is not applied.
    pub(super) error: Option<String>,
    /// The number of times that Redis had lost changes that this process knew.
    pub(super) losses: u64,
    /// The overrides that Redis has lost, without those that were set again.
    pub(super) lost: Entries,
}

/// A change that is allowed, and not made yet.
pub(super) struct Edit {
    pub(super) field: String,
    pub(super) change: Change,
    /// The version that it follows.
    pub(super) previous: u64,
    /// The fields that it removes, with the fields of all overrides that have ended.
    pub(super) removed: Vec<String>,
}

/// The overrides in Redis.
pub(super) struct Stored {
    pub(super) entries: Entries,
    /// The version, or 0 if there was no change yet.
    pub(super) version: u64,
    pub(super) epoch: u64,
}

impl Known {
    /// Returns the edit that sets an override, or removes it for `None`, if the override has the expected version.
    pub(super) fn edit(
        &self,
        field: &str,
        new: Option<&Override>,
        expected: Option<u64>,
        now_micros: u64,
    ) -> Result<Edit, OverrideError> {
        let now_millis = now_micros / 1_000;
        let ended = self.entries.iter().filter(|(_, entry)| !entry.is_in_force(now_millis));
        let mut removed: Vec<_> = ended.map(|(field, _)| field.clone()).collect();
        let before = self.entries.get(field).filter(|it| it.is_in_force(now_millis)).cloned();
        let found = before.as_ref().map_or(0, |it| it.version);
        if new.is_none() && before.is_none() {
            return Err(OverrideError::NotFound);
        }
        if let Some(expected) = expected.filter(|version| *version != found) {
            return Err(OverrideError::Conflict { expected, found });
        }
        if new.and_then(|new| new.until).is_some_and(|until| to_millis(until) <= now_millis) {
            return Err(OverrideError::invalid("until", "a time in the past", "a time to come"));
        }
        if before.is_none() && self.entries.len() - removed.len() >= MAX_OVERRIDES {
            return Err(OverrideError::TooMany);
        }
        if new.is_none() {
            removed.push(field.to_owned());
        }
        // Versions are times, so that they grow even after Redis has lost its data.
        let version = (self.version + 1).max(now_micros);
        let after = new.map(|new| Override { version, ..new.clone() });
        let change = Change { before, after, version, ..Change::default() };
        Ok(Edit { field: field.to_owned(), change, previous: self.version, removed })
    }

    /// Takes over an edit that was made.
    pub(super) fn put(&mut self, edit: Edit) -> Change {
        let entries = Arc::make_mut(&mut self.entries);
        for field in &edit.removed {
            entries.remove(field);
        }
        if let Some(after) = edit.change.after.clone() {
            entries.insert(edit.field.clone(), after);
        }
        self.lost.remove(&edit.field);
        if edit.previous == 0 {
            self.epoch = edit.change.version;
        }
        self.version = edit.change.version;
        edit.change
    }

    /// Takes over the overrides in Redis at this time of Redis. Returns whether it had lost changes.
    pub(super) fn follow(&mut self, stored: Stored, now_millis: u64) -> bool {
        let is_another = ![0, stored.epoch].contains(&self.epoch);
        let has_lost = is_another || stored.version < self.version;
        if has_lost {
            self.losses += 1;
            self.lost.extend(Arc::unwrap_or_clone(take(&mut self.entries)));
        }
        self.lost.retain(|field, lost| {
            lost.is_in_force(now_millis)
                && stored.entries.get(field).is_none_or(|entry| entry.version < lost.version)
        });
        self.entries = Arc::new(stored.entries);
        self.version = stored.version;
        self.epoch = stored.epoch;
        has_lost
    }
}

/// Notes why something does not work, or that it does. The log has a line when that begins and when it ends.
pub(super) fn note(noted: &mut Option<String>, error: Option<String>, began: &str, over: &str) {
    match (&*noted, &error) {
        (None, Some(error)) => tracing::warn!(target: "plimsoll", "{began}: {error}"),
        (Some(_), None) => tracing::info!(target: "plimsoll", "{over}"),
        _ => {}
    }
    *noted = error;
}
