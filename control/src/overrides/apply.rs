//! The overrides that this process has applied to its policies.

use std::{
    collections::{BTreeMap, HashMap},
    sync::Arc,
    time::{Duration, SystemTime},
};

use plimsoll::{Key, Limiter};

use super::{
    OverrideError,
    entry::{Override, OverrideKind, check_algorithm, find},
    time::{to_millis, wall_time},
};
use crate::{KeyType, Registered, Registry};

/// The overrides by their fields.
pub(super) type Entries = BTreeMap<String, Override>;

/// The overrides that are applied, by their fields.
#[derive(Debug, Default)]
pub(super) struct Applied {
    applied: HashMap<String, AppliedOverride>,
    /// The overrides whose keys are none here. Their texts are not parsed again.
    unparsed: HashMap<String, Unparsed>,
}

/// An override whose key is none of the policy here.
#[derive(Debug)]
struct Unparsed {
    version: u64,
    keys: Arc<KeyType>,
    error: String,
}

/// An override that is applied.
#[derive(Debug)]
struct AppliedOverride {
    policy: Registered,
    key: Option<Key>,
    kind: OverrideKind,
    until_millis: u64,
    /// The version of the override, and the generation of the store when it was applied.
    version: (u64, u64),
}

/// The registry and the limiter to which overrides are applied.
#[derive(Debug)]
pub(super) struct Target {
    pub(super) registry: Registry,
    pub(super) limiter: Limiter,
}

/// The treatment of blocks, which are in the store of the limiter.
#[derive(Debug, Clone, Copy)]
pub(super) enum Blocks {
    /// They are sent.
    Send,
    /// One could not be sent: the others wait for the next round.
    Wait,
    /// The store stays as it is: other processes send them.
    Stay,
}

/// The time of the store that has the overrides.
#[derive(Debug, Clone, Copy)]
pub(super) struct StoreTime {
    pub(super) now_millis: u64,
    /// Grows when the store has lost its data, and the blocks with them.
    pub(super) generation: u64,
}

/// The time for which a quota of a key without an end is set: as long as the library blocks a key.
const NO_END: Duration = Limiter::MAX_BLOCK;

impl Override {
    /// Returns the time that is left to the override.
    fn left(&self, now_millis: u64) -> Duration {
        let left = |until| Duration::from_millis(to_millis(until).saturating_sub(now_millis));
        self.until.map_or(NO_END, left).min(NO_END)
    }
}

impl Applied {
    /// Applies the entries that are in force, and ends all other ones. Returns why entries could not be
    /// applied, by their fields.
    pub(super) async fn follow(
        &mut self,
        entries: &Entries,
        target: &Target,
        time: StoreTime,
        mut blocks: Blocks,
    ) -> BTreeMap<String, String> {
        let is_listed = |field: &&String| entries.contains_key(*field);
        let removed: Vec<_> = self.applied.keys().filter(|it| !is_listed(it)).cloned().collect();
        let removed = removed.iter().map(|field| (field, None));
        let listed = entries.iter().map(|(field, entry)| (field, Some(entry)));
        self.unparsed.retain(|field, _| entries.contains_key(field));
        let mut errors = BTreeMap::new();
        for (field, entry) in removed.chain(listed) {
            let followed = self.follow_one(field, entry, target, time, &mut blocks).await;
            followed.unwrap_or_else(|error| drop(errors.insert(field.clone(), error)));
        }
        errors
    }

    /// Applies an entry if it is in force, and otherwise ends what is applied.
    pub(super) async fn follow_one(
        &mut self,
        field: &str,
        entry: Option<&Override>,
        target: &Target,
        time: StoreTime,
        blocks: &mut Blocks,
    ) -> Result<(), String> {
        let entry = entry.filter(|entry| entry.is_in_force(time.now_millis));
        if let Some(applied) = self.applied.get(field)
            && !applied.may_stay(entry, target)
        {
            applied.end(target, time.now_millis, blocks).await?;
            self.applied.remove(field);
        }
        let Some(entry) = entry else { return Ok(()) };
        let version = (entry.version, time.generation);
        if self.applied.get(field).is_some_and(|applied| applied.is_at(version)) {
            return Ok(());
        }
        let Some((policy, key)) = self.find(field, entry, target)? else { return Ok(()) };
        apply(entry, &policy, key, target, time, blocks).await?;
        let until_millis = until_millis(entry);
        let applied = AppliedOverride { policy, key, kind: entry.kind, until_millis, version };
        self.applied.insert(field.to_owned(), applied);
        Ok(())
    }

    /// Returns the policy and the key of an override, or `None` if the registry does not have the policy.
    fn find(
        &mut self,
        field: &str,
        entry: &Override,
        target: &Target,
    ) -> Result<Option<(Registered, Option<Key>)>, String> {
        let Some(policy) = target.registry.get(&entry.policy) else { return Ok(None) };
        let (version, keys) = (entry.version, policy.keys());
        let is_same = |it: &&Unparsed| it.version == version && Arc::ptr_eq(&it.keys, &keys);
        if let Some(unparsed) = self.unparsed.get(field).filter(is_same) {
            return Err(unparsed.error.clone());
        }
        let error = match find(&target.registry, &entry.policy, entry.key.as_deref()) {
            Ok(found) => return Ok(Some(found)),
            // The error of the key would have its text.
            Err(OverrideError::Key(_)) => "its key has another type here".to_owned(),
            Err(error) => error.to_string(),
        };
        let error = format!("an override under {}: {error}", entry.policy);
        let unparsed = Unparsed { version, keys, error: error.clone() };
        self.unparsed.insert(field.to_owned(), unparsed);
        Err(error)
    }
}

impl AppliedOverride {
    fn is_at(&self, version: (u64, u64)) -> bool {
        self.version == version || (self.version.0 == version.0 && self.kind != OverrideKind::Block)
    }

    /// Returns whether the override may stay until this entry is applied.
    ///
    /// A block is in the store, for all instances. It stays there when this registry loses the policy, and
    /// ends when its override is removed.
    fn may_stay(&self, entry: Option<&Override>, target: &Target) -> bool {
        let Some(entry) = entry else { return false };
        let registered = target.registry.get(self.policy.policy().name());
        let is_registered = || registered.is_some_and(|it| it.is_same(&self.policy));
        match (entry.kind, self.kind) {
            // A new block does not make an old one shorter.
            (OverrideKind::Block, OverrideKind::Block) => until_millis(entry) >= self.until_millis,
            // A file may have changed the algorithm of the policy since.
            (OverrideKind::Quota(quota), OverrideKind::Quota(_)) => {
                is_registered() && check_algorithm(&self.policy, quota).is_ok()
            }
            (kind, other) => kind == other && is_registered(),
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
                sent(blocks, target.limiter.unblock(charge)).await?;
            }
            (OverrideKind::Block, _) => {}
        }
        Ok(())
    }
}

fn until_millis(entry: &Override) -> u64 {
    entry.until.map_or(u64::MAX, to_millis)
}

/// Applies an override.
async fn apply(
    entry: &Override,
    policy: &Registered,
    key: Option<Key>,
    target: &Target,
    time: StoreTime,
    blocks: &mut Blocks,
) -> Result<(), String> {
    if let OverrideKind::Quota(quota) = entry.kind {
        let checked = check_algorithm(policy, quota);
        checked.map_err(|error| format!("an override under {}: {error}", entry.policy))?;
    }
    match (entry.kind, key) {
        (OverrideKind::Quota(quota), Some(key)) => {
            let until: SystemTime = wall_time() + entry.left(time.now_millis);
            let set = policy.policy().set_key_quota(key, quota, until);
            set.map_err(|error| error.to_string())?;
        }
        (OverrideKind::Quota(quota), None) => policy.set_override(Some(quota)),
        (OverrideKind::Off, _) => policy.set_enabled(false),
        (OverrideKind::Block, Some(key)) => {
            let charge = policy.policy().charge(key, 1);
            sent(blocks, target.limiter.block(charge, entry.left(time.now_millis))).await?;
        }
        (OverrideKind::Block, None) => {}
    }
    Ok(())
}

/// Sends a block or its end to the store of the limiter.
async fn sent(
    blocks: &mut Blocks,
    request: impl Future<Output = Result<usize, plimsoll::Error>>,
) -> Result<(), String> {
    match blocks {
        Blocks::Stay => return Ok(()),
        Blocks::Wait => return Err("the store of the limiter does not answer".to_owned()),
        Blocks::Send => {}
    }
    let sent = request.await;
    if sent.is_err() {
        *blocks = Blocks::Wait;
    }
    sent.map(drop).map_err(|error| format!("a block was not stored: {error}"))
}
