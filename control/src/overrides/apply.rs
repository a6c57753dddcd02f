//! The [overrides](Override) that this process has applied to its policies.

use std::{collections::HashMap, time::Duration};

use plimsoll::{Key, Limiter, Quota};

use super::{
    OverrideError,
    entry::{Entries, Override, OverrideKind, check_algorithm},
};
use crate::{
    Registered, Registry,
    time::{to_millis, wall_time},
};

/// The [overrides](Override) that are applied, by their fields.
#[derive(Default)]
pub(super) struct Applied(HashMap<String, AppliedOverride>);

/// An override that is applied.
struct AppliedOverride {
    policy: Registered,
    key: Option<Key>,
    entry: Override,
}

/// The registry and the limiter to which overrides are applied.
pub(super) struct Target {
    pub(super) registry: Registry,
    pub(super) limiter: Limiter,
}

/// One pass over overrides, at one time.
pub(super) struct Round<'a> {
    pub(super) target: &'a Target,
    pub(super) now_millis: u64,
    /// True after a block could not be sent to the store of the limiter. The other blocks wait for the next round.
    pub(super) has_failed: bool,
}

/// The time for which a quota of a key without an end is set: as long as the library blocks a key.
const NO_END: Duration = Quota::MAX_WINDOW;

impl Override {
    /// Returns whether the override applies at this time.
    pub(super) fn is_in_force(&self, now_millis: u64) -> bool {
        now_millis < self.until_millis()
    }

    fn until_millis(&self) -> u64 {
        self.until.map_or(u64::MAX, to_millis)
    }
}

impl Applied {
    /// Applies the entries that are in force, and ends all other ones. Returns the first reason for which an
    /// entry could not be applied.
    pub(super) async fn follow(
        &mut self,
        entries: &Entries,
        round: &mut Round<'_>,
    ) -> Option<String> {
        let gone: Vec<_> = self.0.keys().filter(|it| !entries.contains_key(*it)).cloned().collect();
        let wanted = entries.iter().map(|(field, entry)| (field, Some(entry)));
        let mut first = None;
        for (field, entry) in gone.iter().map(|field| (field, None)).chain(wanted) {
            let replaced = self.replace(field, entry, round).await;
            first = first.or(replaced.err());
        }
        first
    }

    /// Applies an entry if it is in force, and otherwise ends what is applied.
    pub(super) async fn replace(
        &mut self,
        field: &str,
        entry: Option<&Override>,
        round: &mut Round<'_>,
    ) -> Result<(), String> {
        let entry = entry.filter(|entry| entry.is_in_force(round.now_millis));
        let registry = &round.target.registry;
        if let Some(applied) = self.0.get(field) {
            if entry.is_none_or(|entry| !applied.may_stay(entry, registry)) {
                applied.put_in_force(false, round).await?;
                self.0.remove(field);
            } else if entry.is_some_and(|entry| entry.version == applied.entry.version) {
                return Ok(());
            }
        }
        if let Some(entry) = entry
            && registry.get(&entry.policy).is_some()
        {
            let applied = AppliedOverride::new(entry, registry)
                .map_err(|cause| format!("an override under {}: {cause}", entry.policy))?;
            applied.put_in_force(true, round).await?;
            self.0.insert(field.to_owned(), applied);
        }
        Ok(())
    }
}

impl AppliedOverride {
    /// Creates the override of an entry, or returns the reason for which it cannot be applied here.
    fn new(entry: &Override, registry: &Registry) -> Result<Self, String> {
        let (policy, key) = entry.check(registry).map_err(|error| match error {
            // The error of the key would have its text.
            OverrideError::Key(_) => "its key has another type here".to_owned(),
            error => error.to_string(),
        })?;
        Ok(Self { policy, key, entry: entry.clone() })
    }

    /// Returns whether the override may stay until this entry is applied.
    ///
    /// A block is in the store, for all instances. It stays there when this [registry](Registry) loses the
    /// policy, and ends when its override is removed.
    fn may_stay(&self, entry: &Override, registry: &Registry) -> bool {
        let registered = registry.get(self.policy.policy().name());
        let is_registered = registered.is_some_and(|it| it.is_same(&self.policy));
        match (entry.kind, self.entry.kind) {
            // A new block does not make an old one shorter.
            (OverrideKind::Block, OverrideKind::Block) => {
                entry.until_millis() >= self.entry.until_millis()
            }
            // A file may have changed the algorithm of the policy since.
            (OverrideKind::Quota(quota), OverrideKind::Quota(_)) => {
                is_registered && check_algorithm(&self.policy, quota).is_ok()
            }
            (kind, other) => kind == other && is_registered,
        }
    }

    /// Begins the override, or ends it. A block whose time is over has ended by itself.
    async fn put_in_force(&self, begins: bool, round: &mut Round<'_>) -> Result<(), String> {
        let policy = self.policy.policy();
        let left = self.entry.until_millis().saturating_sub(round.now_millis);
        let left = Duration::from_millis(left).min(NO_END);
        let limiter = &round.target.limiter;
        match (self.entry.kind, self.key) {
            (OverrideKind::Quota(quota), Some(key)) if begins => {
                let set = policy.set_key_quota(key, quota, wall_time() + left);
                set.map_err(|error| error.to_string())?;
            }
            (OverrideKind::Quota(_), Some(key)) => drop(policy.remove_key_quota(key)),
            (OverrideKind::Quota(quota), None) => self.policy.set_override(begins.then_some(quota)),
            (OverrideKind::Off, _) => self.policy.set_enabled(!begins),
            (OverrideKind::Block, Some(key)) if begins => {
                round.send(limiter.block(policy.charge(key, 1), left)).await?;
            }
            (OverrideKind::Block, Some(key)) if !left.is_zero() => {
                round.send(limiter.unblock(policy.charge(key, 1))).await?;
            }
            (OverrideKind::Block, _) => {}
        }
        Ok(())
    }
}

impl Round<'_> {
    /// Sends a block or its end to the store of the limiter, unless an earlier one has failed.
    async fn send(
        &mut self,
        request: impl Future<Output = Result<usize, plimsoll::Error>>,
    ) -> Result<(), String> {
        if self.has_failed {
            return Err("the store of the limiter does not answer".to_owned());
        }
        let sent = request.await;
        self.has_failed = sent.is_err();
        sent.map(drop).map_err(|error| format!("a block was not stored: {error}"))
    }
}
