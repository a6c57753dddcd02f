//! The quotas of a policy that are in force: its own, and the quotas of single keys, which replace it for a
//! time.

use std::{collections::HashMap, sync::Arc, time::SystemTime};

use arc_swap::ArcSwap;

use crate::{
    clock::{Clock, SystemClock, micros, wall_time},
    error::Error,
    key::Key,
    quota::Quota,
    sync::Mutex,
};

/// A quota that is [set for one key](crate::Policy::set_key_quota) of a policy.
///
/// [`Debug`](std::fmt::Debug) prints a digest of the key, as [`Key`] does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct KeyQuota {
    /// The key.
    pub key: Key,
    /// The quota of the key.
    pub quota: Quota,
    /// The time at which the quota ends.
    pub until: SystemTime,
}

/// The quotas of a policy. Charges read them without a lock. A change replaces all of them, and copies the
/// table of the keys for it.
pub(super) struct LiveQuotas {
    in_force: ArcSwap<InForce>,
    /// Held during each change.
    changes: Mutex<()>,
}

/// The quotas at one time.
#[derive(Clone)]
struct InForce {
    quota: Quota,
    version: u64,
    /// `None` if no key has a quota of its own.
    of_keys: Option<Arc<KeyTable>>,
}

/// The quotas of keys, with their ends by the clock of the table. `benches/check.rs` (key quotas) shows the cost of
/// a search.
#[derive(Clone, Default)]
struct KeyTable {
    clock: SystemClock,
    lines: HashMap<Key, KeyLine>,
}

#[derive(Clone, Copy)]
struct KeyLine {
    quota: Quota,
    until: SystemTime,
    end: u64,
}

impl LiveQuotas {
    /// The maximum number of keys.
    pub(super) const MAX_KEYS: usize = 10_000;

    pub(super) fn new(quota: Quota) -> Self {
        Self::of_quotas(InForce { quota, version: 0, of_keys: None })
    }

    fn of_quotas(in_force: InForce) -> Self {
        Self { in_force: ArcSwap::from_pointee(in_force), changes: Mutex::default() }
    }

    /// Returns a copy, which later changes do not change.
    pub(super) fn copy(&self) -> Self {
        Self::of_quotas(InForce { version: 0, ..self.in_force() })
    }

    /// Returns the quota of the policy.
    pub(super) fn quota(&self) -> Quota {
        self.in_force.load().quota
    }

    /// Returns the number of changes of the quota of the policy.
    pub(super) fn version(&self) -> u64 {
        self.in_force.load().version
    }

    /// Returns the quota of the policy, and the quota of a key if it has one.
    pub(super) fn of(&self, key: &Key) -> (Quota, Option<Quota>) {
        let in_force = self.in_force.load();
        (in_force.quota, in_force.of_keys.as_ref().and_then(|of_keys| of_keys.find(key)))
    }

    /// Replaces the quota of the policy.
    pub(super) fn set(&self, quota: Quota) {
        let _changes = self.changes.lock();
        let InForce { version, of_keys, .. } = self.in_force();
        self.in_force.store(Arc::new(InForce { quota, version: version + 1, of_keys }));
    }

    /// Sets the quota of a key, or ends it if its time has passed.
    pub(super) fn set_key(&self, key: Key, quota: Quota, until: SystemTime) -> Result<(), Error> {
        let left = micros(until.duration_since(wall_time()).unwrap_or_default());
        if left == 0 {
            self.remove_key(&key);
            return Ok(());
        }
        let _changes = self.changes.lock();
        let mut in_force = self.in_force();
        let table = Arc::make_mut(in_force.of_keys.get_or_insert_default());
        let now = table.now();
        if table.lines.len() >= Self::MAX_KEYS && !table.lines.contains_key(&key) {
            table.lines.retain(|_, line| now < line.end);
            if table.lines.len() >= Self::MAX_KEYS {
                return Err(too_many());
            }
        }
        table.lines.insert(key, KeyLine { quota, until, end: now.saturating_add(left) });
        self.in_force.store(Arc::new(in_force));
        Ok(())
    }

    /// Removes the quota of a key. Returns whether it was in force.
    pub(super) fn remove_key(&self, key: &Key) -> bool {
        let _changes = self.changes.lock();
        let mut in_force = self.in_force();
        let Some(table) = in_force.of_keys.as_mut().filter(|it| it.lines.contains_key(key)) else {
            return false;
        };
        let table = Arc::make_mut(table);
        let line = table.lines.remove(key);
        let was_in_force = line.is_some_and(|line| table.now() < line.end);
        if table.lines.is_empty() {
            in_force.of_keys = None;
        }
        self.in_force.store(Arc::new(in_force));
        was_in_force
    }

    /// Returns the quotas of keys that are in force, in the order of the keys.
    pub(super) fn of_keys(&self) -> Vec<KeyQuota> {
        let Some(table) = self.in_force().of_keys else { return Vec::new() };
        let now = table.now();
        let lines = table.lines.iter().filter(|(_, line)| now < line.end);
        let mut quotas: Vec<_> = lines
            .map(|(&key, &KeyLine { quota, until, .. })| KeyQuota { key, quota, until })
            .collect();
        quotas.sort_unstable_by_key(|quota| quota.key);
        quotas
    }

    fn in_force(&self) -> InForce {
        InForce::clone(&self.in_force.load())
    }
}

impl KeyTable {
    /// Returns the quota of a key if it has not ended.
    fn find(&self, key: &Key) -> Option<Quota> {
        let line = self.lines.get(key)?;
        (self.now() < line.end).then_some(line.quota)
    }

    fn now(&self) -> u64 {
        self.clock.now().as_micros()
    }
}

#[cold]
fn too_many() -> Error {
    Error::invalid(
        "number of keys with a quota of their own",
        format_args!("more than {}", LiveQuotas::MAX_KEYS),
        format_args!("at most {}", LiveQuotas::MAX_KEYS),
    )
}
