//! The state of overrides that all their handles share.

use std::{
    collections::BTreeMap,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use plimsoll::{Clock, Key};

use super::{
    AuditAction, AuditEntry, Change, NewOverride, Override, OverrideError,
    apply::{Applied, Entries, StoreTime, Target},
    entry::{digest, field, find, new_entry},
    known::Known,
    memory::MemoryAudit,
    redis::{Changed, RedisBackend},
};

#[derive(Debug)]
pub(super) struct Shared {
    pub(super) target: Target,
    pub(super) backend: Backend,
    clock: Arc<dyn Clock>,
    known: Mutex<Known>,
    applied: tokio::sync::Mutex<Applied>,
    /// Held from a command to the store until the reply is known.
    turn: tokio::sync::Mutex<()>,
    pub(super) show_keys: AtomicBool,
}

/// The place that keeps the overrides.
#[derive(Debug)]
pub(super) enum Backend {
    Memory(MemoryAudit),
    Redis(Box<RedisBackend>),
}

impl Shared {
    pub(super) fn new(target: Target, backend: Backend, clock: Arc<dyn Clock>) -> Self {
        Self {
            target,
            backend,
            clock,
            known: Mutex::default(),
            applied: tokio::sync::Mutex::default(),
            turn: tokio::sync::Mutex::default(),
            show_keys: AtomicBool::new(false),
        }
    }

    /// Stores an override.
    pub(super) async fn set(
        &self,
        field: &str,
        new: &NewOverride,
        entry: AuditEntry,
    ) -> Result<Change, OverrideError> {
        let _turn = self.turn.lock().await;
        match &self.backend {
            Backend::Redis(backend) => {
                let changed = backend.set(field, new_entry(new, 0), new.version, &entry).await?;
                self.take(backend, field, changed).await
            }
            Backend::Memory(audit) => {
                let now_millis = self.now_millis();
                let change = self.known().set(field, new, now_millis)?;
                audit.push_change(entry, &change);
                Ok(change)
            }
        }
    }

    /// Removes an override from the store.
    pub(super) async fn remove(
        &self,
        field: &str,
        entry: AuditEntry,
    ) -> Result<Change, OverrideError> {
        let _turn = self.turn.lock().await;
        match &self.backend {
            Backend::Redis(backend) => {
                let changed = backend.remove(field, &entry).await?;
                self.take(backend, field, changed).await
            }
            Backend::Memory(audit) => {
                let now_millis = self.now_millis();
                let change = self.known().remove(field, now_millis)?;
                audit.push_change(entry, &change);
                Ok(change)
            }
        }
    }

    /// Takes over a change of the store. If it was not the first one since the last poll, applies the others.
    async fn take(
        &self,
        backend: &RedisBackend,
        field: &str,
        changed: Changed,
    ) -> Result<Change, OverrideError> {
        if !self.known().take(field, changed.previous, &changed.change) {
            self.poll_in_turn(backend).await?;
            drop(self.follow().await);
        }
        Ok(changed.change)
    }

    /// Learns the changes of other instances. Returns whether there were any.
    pub(super) async fn poll(&self) -> Result<bool, OverrideError> {
        let Backend::Redis(backend) = &self.backend else { return Ok(false) };
        let _turn = self.turn.lock().await;
        let state = |known: &Known| (known.version, known.generation);
        let before = state(&self.known());
        let result = self.poll_in_turn(backend).await;
        let mut known = self.known();
        known.store_error = result.as_ref().err().map(ToString::to_string);
        result.map(|()| state(&known) != before)
    }

    /// Polls while this task has the turn. If the store has lost overrides, puts them back.
    async fn poll_in_turn(&self, backend: &RedisBackend) -> Result<(), OverrideError> {
        for is_last in [false, true] {
            let (version, ended) = {
                let known = self.known();
                (known.version, known.ended(self.now_millis_of(&known)))
            };
            let poll = backend.poll(version, ended).await?;
            let entries = {
                let mut known = self.known();
                known.hear(poll.now_micros, self.clock.now().as_micros());
                if poll.is_known || is_last {
                    known.follow(poll);
                    return Ok(());
                }
                Arc::clone(&known.entries)
            };
            let reason = "Redis had lost overrides. Earlier entries of this log may be lost too";
            let mut entry = AuditEntry::new(AuditAction::Restore, "an instance", reason);
            entry.after = Some(format!("{} overrides known to the instance", entries.len()));
            if backend.restore(version, &entries, &entry).await?.is_some() {
                self.known().restores += 1;
            }
        }
        Ok(())
    }

    /// Applies the overrides in force to the policies of this process. Returns why some could not be
    /// applied, by their fields.
    pub(super) async fn follow(&self) -> BTreeMap<String, String> {
        let mut applied = self.applied.lock().await;
        let (entries, time) = self.present();
        let errors = applied.follow(&entries, &self.target, time).await;
        drop(entries);
        let mut known = self.known();
        if matches!(self.backend, Backend::Memory(_)) {
            known.forget_ended(time.now_millis);
        }
        known.error = errors.values().next().cloned();
        errors
    }

    /// Applies one override to the policies of this process, or ends it.
    pub(super) async fn follow_one(&self, field: &str) -> Result<(), OverrideError> {
        let mut applied = self.applied.lock().await;
        let (entries, time) = self.present();
        let entry = entries.get(field).cloned();
        // The next change finds no other handle, and need not copy all entries.
        drop(entries);
        let mut can_block = true;
        let followed =
            applied.follow_one(field, entry.as_ref(), &self.target, time, &mut can_block).await;
        followed.map_err(|message| OverrideError::NotApplied { message })
    }

    fn present(&self) -> (Arc<Entries>, StoreTime) {
        let known = self.known();
        let now_millis = self.now_millis_of(&known);
        let time = StoreTime { now_millis, generation: known.generation };
        (Arc::clone(&known.entries), time)
    }

    pub(super) fn known(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the time of the store in milliseconds.
    pub(super) fn now_millis(&self) -> u64 {
        let known = self.known();
        self.now_millis_of(&known)
    }

    pub(super) fn now_millis_of(&self, known: &Known) -> u64 {
        self.clock.now().as_micros().saturating_add_signed(known.ahead_micros) / 1_000
    }

    /// Returns the time since the store has answered.
    pub(super) fn unheard(&self, known: &Known) -> Duration {
        match self.backend {
            Backend::Memory(_) => Duration::ZERO,
            Backend::Redis(_) => Duration::from_micros(
                self.clock.now().as_micros().saturating_sub(known.heard_micros),
            ),
        }
    }

    /// Returns the field of an override, by its key or by the digest of the key.
    pub(super) fn find_field(
        &self,
        policy: &str,
        key: Option<&str>,
    ) -> Result<String, OverrideError> {
        let found = find(&self.target.registry, policy, key);
        let by_key = found.map(|(_, key)| field(policy, key.as_ref()));
        let Some(text) = key.filter(|text| text.starts_with('#')) else { return by_key };
        let entries = Arc::clone(&self.known().entries);
        if by_key.as_ref().is_ok_and(|field| entries.contains_key(field)) {
            return by_key;
        }
        let has_digest = |entry: &Override| {
            let key = find(&self.target.registry, policy, entry.key.as_deref());
            key.is_ok_and(|(_, key)| key.is_some_and(|key| digest(&key) == text))
        };
        let mut of_policy = entries.iter().filter(|(_, entry)| entry.policy == policy);
        let by_digest = of_policy.find(|(_, entry)| has_digest(entry));
        by_digest.map(|(field, _)| field.clone()).map_or_else(
            || match by_key {
                Err(OverrideError::Key(error)) if error.is_digest() => Err(OverrideError::NotFound),
                other => other,
            },
            Ok,
        )
    }

    /// Returns the form of a key that may be shown.
    pub(super) fn shown_key(&self, policy: &str, text: String) -> String {
        if self.show_keys.load(Ordering::Relaxed) {
            return text;
        }
        match find(&self.target.registry, policy, Some(&text)) {
            Ok((_, Some(key))) => digest(&key),
            _ => digest(&Key::from(text)),
        }
    }
}
