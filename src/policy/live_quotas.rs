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

/// The quotas of a policy. Charges read them without a lock. A change copies and replaces all of them.
pub(super) struct LiveQuotas {
    in_force: ArcSwap<InForce>,
    /// Held during each change.
    changes: Mutex<()>,
    /// The clock of the ends.
    clock: SystemClock,
}

/// The quotas at one time.
#[derive(Clone)]
struct InForce {
    quota: Quota,
    version: u64,
    /// The quotas of keys. `benches/check.rs` (key quotas) shows the cost of a search.
    of_keys: HashMap<Key, KeyLine>,
}

#[derive(Clone, Copy)]
struct KeyLine {
    quota: Quota,
    until: SystemTime,
    /// The microsecond of the clock from which on the quota of the policy applies again.
    end: u64,
}

impl LiveQuotas {
    /// The maximum number of keys.
    pub(super) const MAX_KEYS: usize = 10_000;

    pub(super) fn new(quota: Quota) -> Self {
        let in_force = InForce { quota, version: 0, of_keys: HashMap::new() };
        Self::of_quotas(in_force, SystemClock::new())
    }

    fn of_quotas(in_force: InForce, clock: SystemClock) -> Self {
        Self { in_force: ArcSwap::from_pointee(in_force), changes: Mutex::default(), clock }
    }

    /// Returns a copy, which later changes do not change.
    pub(super) fn copy(&self) -> Self {
        Self::of_quotas(InForce { version: 0, ..self.in_force() }, self.clock)
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
    #[inline]
    pub(super) fn of(&self, key: &Key) -> (Quota, Option<Quota>) {
        let in_force = self.in_force.load();
        let line = in_force.of_keys.get(key).filter(|line| self.now() < line.end);
        (in_force.quota, line.map(|line| line.quota))
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
        let now = self.now();
        let mut in_force = self.in_force();
        let lines = &mut in_force.of_keys;
        lines.retain(|_, line| now < line.end);
        lines.insert(key, KeyLine { quota, until, end: now.saturating_add(left) });
        if lines.len() > Self::MAX_KEYS {
            return Err(Error::invalid(
                "number of keys with a quota of their own",
                format_args!("more than {}", Self::MAX_KEYS),
                format_args!("at most {}", Self::MAX_KEYS),
            ));
        }
        self.in_force.store(Arc::new(in_force));
        Ok(())
    }

    /// Removes the quota of a key. Returns whether it was in force.
    pub(super) fn remove_key(&self, key: &Key) -> bool {
        let _changes = self.changes.lock();
        if !self.in_force.load().of_keys.contains_key(key) {
            return false;
        }
        let mut in_force = self.in_force();
        let line = in_force.of_keys.remove(key);
        self.in_force.store(Arc::new(in_force));
        line.is_some_and(|line| self.now() < line.end)
    }

    /// Returns the quotas of keys that are in force, in the order of the keys.
    pub(super) fn of_keys(&self) -> Vec<KeyQuota> {
        let now = self.now();
        let in_force = self.in_force.load();
        let lines = in_force.of_keys.iter().filter(|(_, line)| now < line.end);
        let mut quotas: Vec<_> = lines
            .map(|(&key, &KeyLine { quota, until, .. })| KeyQuota { key, quota, until })
            .collect();
        quotas.sort_unstable_by_key(|quota| quota.key);
        quotas
    }

    fn in_force(&self) -> InForce {
        InForce::clone(&self.in_force.load())
    }

    fn now(&self) -> u64 {
        self.clock.now().as_micros()
    }
}
