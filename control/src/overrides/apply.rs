//! The overrides that this process has applied to its policies.

use std::{
    collections::{BTreeMap, HashMap},
    time::{Duration, SystemTime},
};

use plimsoll::{Key, Limiter};

use super::{
    entry::{Override, OverrideKind, find},
    time::{to_millis, wall_time},
};
use crate::{Registered, Registry};

/// The overrides by their fields.
pub(super) type Entries = BTreeMap<String, Override>;

/// The overrides that are applied, by their fields.
#[derive(Debug, Default)]
pub(super) struct Applied(HashMap<String, AppliedOverride>);

/// An override that is applied.
#[derive(Debug)]
struct AppliedOverride {
    policy: Registered,
    key: Option<Key>,
    kind: OverrideKind,
    until_millis: u64,
    /// The version of the override, and the generation of the store to which its block was sent.
    version: (u64, u64),
}

/// Where overrides are applied.
#[derive(Debug)]
pub(super) struct Target {
    pub(super) registry: Registry,
    pub(super) limiter: Limiter,
}

/// The time of the store that has the overrides.
#[derive(Debug, Clone, Copy)]
pub(super) struct StoreTime {
    pub(super) now_millis: u64,
    /// Grows when the store has lost its data, and the blocks with them.
    pub(super) generation: u64,
}

/// How long a quota of a key without an end is set for: as long as the library blocks a key.
const NO_END: Duration = Limiter::MAX_BLOCK;

impl Override {
    /// Returns whether the override applies at this time.
    pub(super) fn is_in_force(&self, now_millis: u64) -> bool {
        self.until.is_none_or(|until| now_millis < to_millis(until))
    }

    /// Returns the time that is left to the override.
    fn left(&self, now_millis: u64) -> Duration {
        let left = |until| Duration::from_millis(to_millis(until).saturating_sub(now_millis));
        self.until.map_or(NO_END, left).min(NO_END)
    }
}

impl Applied {
    /// Applies the entries that are in force, and ends all other ones. Returns the first reason for which
    /// an entry could not be applied.
    pub(super) async fn follow(
        &mut self,
        entries: &Entries,
        target: &Target,
        time: StoreTime,
    ) -> Result<(), String> {
        let mut result = Ok(());
        let mut ended = Vec::new();
        for (field, applied) in &self.0 {
            let entry = entries.get(field).filter(|entry| entry.is_in_force(time.now_millis));
            let registered = target.registry.get(applied.policy.policy().name());
            let is_registered = registered.is_some_and(|it| it.is_same(&applied.policy));
            if !is_registered || entry.is_none_or(|it| !it.kind.replaces(applied.kind)) {
                ended.push(field.clone());
            }
        }
        for field in ended {
            let Some(applied) = self.0.remove(&field) else { continue };
            if let Err(error) = applied.end(&target.limiter, time.now_millis).await {
                self.0.insert(field, applied);
                result = result.and(Err(error));
            }
        }
        for (field, entry) in entries {
            let version = (entry.version, time.generation);
            let is_applied = self.0.get(field).is_some_and(|it| it.is_at(version));
            if is_applied || !entry.is_in_force(time.now_millis) {
                continue;
            }
            match apply(entry, target, time).await {
                Ok(Some((policy, key))) => {
                    let until_millis = entry.until.map_or(u64::MAX, to_millis);
                    let kind = entry.kind;
                    let applied = AppliedOverride { policy, key, kind, until_millis, version };
                    self.0.insert(field.clone(), applied);
                }
                Ok(None) => {}
                Err(error) => result = result.and(Err(error)),
            }
        }
        result
    }
}

impl AppliedOverride {
    fn is_at(&self, version: (u64, u64)) -> bool {
        self.version == version || (self.version.0 == version.0 && self.kind != OverrideKind::Block)
    }

    /// Ends the override. A block whose time is over has ended by itself.
    async fn end(&self, limiter: &Limiter, now_millis: u64) -> Result<(), String> {
        match (self.kind, self.key) {
            (OverrideKind::Quota(_), Some(key)) => drop(self.policy.policy().remove_key_quota(key)),
            (OverrideKind::Quota(_), None) => self.policy.set_override(None),
            (OverrideKind::Off, _) => self.policy.set_enabled(true),
            (OverrideKind::Block, Some(key)) if now_millis < self.until_millis => {
                let unblocked = limiter.unblock(self.policy.policy().charge(key, 1)).await;
                return unblocked.map(drop).map_err(|error| format!("an unblock failed: {error}"));
            }
            (OverrideKind::Block, _) => {}
        }
        Ok(())
    }
}

impl OverrideKind {
    /// Returns whether this override takes the place of another one without a step between.
    fn replaces(self, other: Self) -> bool {
        matches!((self, other), (Self::Quota(_), Self::Quota(_))) || self == other
    }
}

/// Applies an override, unless the registry does not have its policy. Returns the policy and the key.
async fn apply(
    entry: &Override,
    target: &Target,
    time: StoreTime,
) -> Result<Option<(Registered, Option<Key>)>, String> {
    if target.registry.get(&entry.policy).is_none() {
        return Ok(None);
    }
    // The error of the key would have its text.
    let found = find(&target.registry, &entry.policy, entry.key.as_deref());
    let (policy, key) =
        found.map_err(|_| format!("a key under {} has another type here", entry.policy))?;
    match (entry.kind, key) {
        (OverrideKind::Quota(quota), Some(key)) => {
            let until: SystemTime = wall_time() + entry.left(time.now_millis);
            let set = policy.policy().set_key_quota(key, quota, until);
            set.map_err(|error| error.to_string())?;
        }
        (OverrideKind::Quota(quota), None) => policy.set_override(Some(quota)),
        (OverrideKind::Off, _) => policy.set_enabled(false),
        (OverrideKind::Block, Some(key)) => {
            let left = entry.left(time.now_millis);
            let blocked = target.limiter.block(policy.policy().charge(key, 1), left).await;
            blocked.map_err(|error| format!("a block failed: {error}"))?;
        }
        (OverrideKind::Block, None) => {}
    }
    Ok(Some((policy, key)))
}
