//! The [overrides](Override) that this process has applied to its policies.

use std::{collections::HashMap, time::Duration};

use plimsoll::{Key, Limiter, Quota};

use super::{
    OverrideError,
    entry::{Entries, Override, OverrideKind, check_algorithm, find},
};
use crate::{
    Registered, Registry,
    time::{to_millis, wall_time},
};

/// The [overrides](Override) that are applied, by their fields.
#[derive(Debug, Default)]
pub(super) struct Applied(HashMap<String, AppliedOverride>);

/// An override that is applied.
#[derive(Debug)]
struct AppliedOverride {
    policy: Registered,
    key: Option<Key>,
    kind: OverrideKind,
    until_millis: u64,
    version: u64,
}

/// The blocks of one round, which are in the store of the limiter. After one has failed, the others wait for the next
/// round.
#[derive(Debug, Default)]
struct Blocks {
    have_failed: bool,
}

/// The registry and the limiter to which overrides are applied.
#[derive(Debug)]
pub(super) struct Target {
    pub(super) registry: Registry,
    pub(super) limiter: Limiter,
}

/// The time for which a quota of a key without an end is set: as long as the library blocks a key.
const NO_END: Duration = Quota::MAX_WINDOW;

impl Override {
    /// Returns the time that is left to the override.
    fn left(&self, now_millis: u64) -> Duration {
        Duration::from_millis(self.until_millis().saturating_sub(now_millis)).min(NO_END)
    }

    fn until_millis(&self) -> u64 {
        self.until.map_or(u64::MAX, to_millis)
    }

    /// Returns whether the override applies at this time.
    pub(super) fn is_in_force(&self, now_millis: u64) -> bool {
        now_millis < self.until_millis()
    }

    /// Applies the override, whose policy and key these are.
    async fn apply(
        &self,
        policy: &Registered,
        key: Option<Key>,
        target: &Target,
        now_millis: u64,
        blocks: &mut Blocks,
    ) -> Result<(), String> {
        match (self.kind, key) {
            (OverrideKind::Quota(quota), _) => {
                let checked = check_algorithm(policy, quota);
                checked.map_err(|error| format!("an override under {}: {error}", self.policy))?;
                match key {
                    Some(key) => {
                        let until = wall_time() + self.left(now_millis);
                        let set = policy.policy().set_key_quota(key, quota, until);
                        set.map_err(|error| error.to_string())?;
                    }
                    None => policy.set_override(Some(quota)),
                }
            }
            (OverrideKind::Off, _) => policy.set_enabled(false),
            (OverrideKind::Block, Some(key)) => {
                let charge = policy.policy().charge(key, 1);
                blocks.send(target.limiter.block(charge, self.left(now_millis))).await?;
            }
            (OverrideKind::Block, None) => {}
        }
        Ok(())
    }
}

impl Applied {
    /// Applies the entries that are in force, and ends all other ones. Returns the first reason for which an
    /// entry could not be applied.
    pub(super) async fn follow(
        &mut self,
        entries: &Entries,
        target: &Target,
        now_millis: u64,
    ) -> Option<String> {
        let gone = self.0.keys().filter(|field| !entries.contains_key(*field));
        let gone: Vec<_> = gone.cloned().collect();
        let mut blocks = Blocks::default();
        let mut first = None;
        for field in &gone {
            let ended = self.replace(field, None, target, now_millis, &mut blocks).await;
            first = first.or(ended.err());
        }
        for (field, entry) in entries {
            let entry = Some(entry);
            let replaced = self.replace(field, entry, target, now_millis, &mut blocks).await;
            first = first.or(replaced.err());
        }
        first
    }

    /// Applies an entry if it is in force, and otherwise ends what is applied.
    pub(super) async fn follow_one(
        &mut self,
        field: &str,
        entry: Option<&Override>,
        target: &Target,
        now_millis: u64,
    ) -> Result<(), String> {
        self.replace(field, entry, target, now_millis, &mut Blocks::default()).await
    }

    async fn replace(
        &mut self,
        field: &str,
        entry: Option<&Override>,
        target: &Target,
        now_millis: u64,
        blocks: &mut Blocks,
    ) -> Result<(), String> {
        let entry = entry.filter(|entry| entry.is_in_force(now_millis));
        if let Some(applied) = self.0.get(field)
            && !applied.may_stay(entry, target)
        {
            applied.end(target, now_millis, blocks).await?;
            self.0.remove(field);
        }
        let Some(entry) = entry else { return Ok(()) };
        let is_applied = self.0.get(field).is_some_and(|it| it.version == entry.version);
        if is_applied || target.registry.get(&entry.policy).is_none() {
            return Ok(());
        }
        let found = find(&target.registry, &entry.policy, entry.key.as_deref());
        let (policy, key) = found.map_err(|error| {
            let cause = match error {
                // The error of the key would have its text.
                OverrideError::Key(_) => "its key has another type here".to_owned(),
                error => error.to_string(),
            };
            format!("an override under {}: {cause}", entry.policy)
        })?;
        entry.apply(&policy, key, target, now_millis, blocks).await?;
        let (kind, until_millis, version) = (entry.kind, entry.until_millis(), entry.version);
        let applied = AppliedOverride { policy, key, kind, until_millis, version };
        self.0.insert(field.to_owned(), applied);
        Ok(())
    }
}

impl AppliedOverride {
    /// Returns whether the override may stay until this entry is applied.
    ///
    /// A block is in the store, for all instances. It stays there when this [registry](Registry) loses the
    /// policy, and ends when its override is removed.
    fn may_stay(&self, entry: Option<&Override>, target: &Target) -> bool {
        let Some(entry) = entry else { return false };
        let registered = target.registry.get(self.policy.policy().name());
        let is_registered = registered.is_some_and(|it| it.is_same(&self.policy));
        match (entry.kind, self.kind) {
            // A new block does not make an old one shorter.
            (OverrideKind::Block, OverrideKind::Block) => entry.until_millis() >= self.until_millis,
            // A file may have changed the algorithm of the policy since.
            (OverrideKind::Quota(quota), OverrideKind::Quota(_)) => {
                is_registered && check_algorithm(&self.policy, quota).is_ok()
            }
            (kind, other) => kind == other && is_registered,
        }
    }

    /// Ends the override. A block whose time is over has ended by itself.
    async fn end(
        &self,
        target: &Target,
        now_millis: u64,
        blocks: &mut Blocks,
    ) -> Result<(), String> {
        match (self.kind, self.key) {
            (OverrideKind::Quota(_), Some(key)) => drop(self.policy.policy().remove_key_quota(key)),
            (OverrideKind::Quota(_), None) => self.policy.set_override(None),
            (OverrideKind::Off, _) => self.policy.set_enabled(true),
            (OverrideKind::Block, Some(key)) if now_millis < self.until_millis => {
                let charge = self.policy.policy().charge(key, 1);
                blocks.send(target.limiter.unblock(charge)).await?;
            }
            (OverrideKind::Block, _) => {}
        }
        Ok(())
    }
}

impl Blocks {
    /// Sends a block or its end to the store of the limiter, unless an earlier one has failed.
    async fn send(
        &mut self,
        request: impl Future<Output = Result<usize, plimsoll::Error>>,
    ) -> Result<(), String> {
        if self.have_failed {
            return Err("the store of the limiter does not answer".to_owned());
        }
        let sent = request.await;
        self.have_failed = sent.is_err();
        sent.map(drop).map_err(|error| format!("a block was not stored: {error}"))
    }
}
