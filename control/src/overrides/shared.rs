//! The state of overrides that all their handles share.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use plimsoll::Clock;
use tokio::time::timeout;

use super::{
    AuditAction, AuditEntry, Change, NewOverride, OverrideError,
    apply::{Applied, Blocks, Entries, StoreTime, Target},
    entry::new_entry,
    known::Known,
    memory::MemoryAudit,
    redis::{Changed, READ_TIMEOUT, RedisBackend},
    report,
};

/// The right to send a command to the store, until the reply is known.
type Turn<'a> = tokio::sync::MutexGuard<'a, ()>;

/// The longest wait for other requests of this process.
const TURN_TIMEOUT: Duration = Duration::from_secs(3);

#[derive(Debug)]
pub(super) struct Shared {
    pub(super) target: Target,
    pub(super) backend: Backend,
    clock: Arc<dyn Clock>,
    known: Mutex<Known>,
    applied: tokio::sync::Mutex<Applied>,
    turn: tokio::sync::Mutex<()>,
}

/// The place that keeps the overrides.
#[derive(Debug)]
pub(super) enum Backend {
    Memory(MemoryAudit),
    Redis(Box<RedisBackend>),
}

impl Shared {
    pub(super) fn new(target: Target, backend: Backend, clock: Arc<dyn Clock>) -> Self {
        let heard_micros = clock.now().as_micros();
        if matches!(backend, Backend::Redis(_)) {
            report::describe();
        }
        Self {
            target,
            backend,
            clock,
            known: Mutex::new(Known { heard_micros, ..Known::default() }),
            applied: tokio::sync::Mutex::default(),
            turn: tokio::sync::Mutex::default(),
        }
    }

    /// Stores an override.
    pub(super) async fn set(
        &self,
        field: &str,
        new: &NewOverride,
        entry: AuditEntry,
    ) -> Result<Change, OverrideError> {
        match &self.backend {
            Backend::Redis(backend) => {
                let turn = self.turn().await?;
                let (known, stored) = (self.known().version, new_entry(new, 0));
                let changed = backend.set(known, field, stored, new.version, &entry).await?;
                Ok(self.take(turn, backend, field, changed).await)
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
        expected: Option<u64>,
        entry: AuditEntry,
    ) -> Result<Change, OverrideError> {
        match &self.backend {
            Backend::Redis(backend) => {
                let turn = self.turn().await?;
                let known = self.known().version;
                let changed = backend.remove(known, field, expected, &entry).await?;
                Ok(self.take(turn, backend, field, changed).await)
            }
            Backend::Memory(audit) => {
                let now_millis = self.now_millis();
                let change = self.known().remove(field, expected, now_millis)?;
                audit.push_change(entry, &change);
                Ok(change)
            }
        }
    }

    /// Waits until an instance of the service has read this version, if this process is none. Returns a warning
    /// if none has in time.
    pub(super) async fn unread(&self, version: u64) -> Option<String> {
        let Backend::Redis(backend) = &self.backend else { return None };
        if !backend.is_passive() || backend.is_read(version).await {
            return None;
        }
        Some(format!(
            "no instance has read this change within {READ_TIMEOUT:?}: is the service running with the same Redis \
             and the prefix {:?}?",
            backend.prefix()
        ))
    }

    /// Waits until this task may send a command.
    async fn turn(&self) -> Result<Turn<'_>, OverrideError> {
        let turn = timeout(TURN_TIMEOUT, self.turn.lock()).await;
        turn.map_err(|_| OverrideError::Unavailable {
            message: "an earlier request still waits for it".into(),
            may_apply: false,
        })
    }

    /// Takes over a change of the store. If it was not the first one since the last poll, applies the others.
    async fn take(
        &self,
        turn: Turn<'_>,
        backend: &RedisBackend,
        field: &str,
        Changed { change, previous }: Changed,
    ) -> Change {
        if self.known().take(field, previous, &change) {
            return change;
        }
        // The change is stored, also if the others cannot be learnt now.
        if self.poll_in_turn(backend).await.is_err() {
            self.known().put(field, &change);
        }
        drop(turn);
        drop(self.follow().await);
        change
    }

    /// Learns the changes of other instances. Returns whether there were any.
    pub(super) async fn poll(&self) -> Result<bool, OverrideError> {
        let Backend::Redis(backend) = &self.backend else { return Ok(false) };
        let _turn = self.turn().await?;
        let state = |known: &Known| (known.version, known.generation);
        let before = state(&self.known());
        let result = self.poll_in_turn(backend).await;
        let mut known = self.known();
        known.set_store_error(result.as_ref().err().map(|error| match error {
            OverrideError::Unavailable { message, .. } => {
                format!("Redis does not answer: {message}")
            }
            error => error.to_string(),
        }));
        result.map(|()| state(&known) != before)
    }

    /// Polls while this task has the turn. If the store has lost overrides, puts them back.
    async fn poll_in_turn(&self, backend: &RedisBackend) -> Result<(), OverrideError> {
        for is_first in [true, false] {
            let (version, ended) = {
                let known = self.known();
                (known.version, known.ended(self.now_millis_of(&known)))
            };
            let poll = backend.poll(version, ended).await?;
            {
                let mut known = self.known();
                known.hear(poll.now_micros, self.clock.now().as_micros());
                if poll.is_known || backend.is_passive() {
                    known.follow(poll);
                    return Ok(());
                }
            }
            if is_first {
                self.restore(backend, version).await?;
            }
        }
        // The next poll tries again. Until then, this process forgets nothing.
        let message = "it has lost overrides again, while they were put back".into();
        Err(OverrideError::Unavailable { message, may_apply: false })
    }

    /// Puts back what the store has lost.
    async fn restore(&self, backend: &RedisBackend, version: u64) -> Result<(), OverrideError> {
        let (entries, marks) = {
            let known = self.known();
            (Arc::clone(&known.entries), Arc::clone(&known.marks))
        };
        let reason = "Redis had lost overrides. Earlier entries of this log may be lost too";
        let mut entry = AuditEntry::new(AuditAction::Restore, "an instance", reason);
        entry.after = Some(format!("{} overrides known to the instance", entries.len()));
        let restored = backend.restore(version, &entries, &marks, &entry).await?;
        let Some(restored) = restored else { return Ok(()) };
        self.known().set_restored(&restored);
        if restored.undecided > 0 {
            let reason = "Redis had lost changes. Compare the overrides with the wanted ones";
            let mut entry = AuditEntry::new(AuditAction::Loss, "an instance", reason);
            let lost = "overrides may be lost, or in force although they were removed";
            entry.after = Some(format!("{} {lost}", restored.undecided));
            // The metric and the log of the process have it too.
            let _ = backend.note(&entry).await;
        }
        Ok(())
    }

    /// Applies the overrides in force to the policies of this process. Returns why some could not be
    /// applied, by their fields.
    pub(super) async fn follow(&self) -> BTreeMap<String, String> {
        let mut errors = BTreeMap::new();
        // Otherwise another task applies them now.
        let Ok(mut applied) = timeout(TURN_TIMEOUT, self.applied.lock()).await else {
            return errors;
        };
        let (entries, time) = self.present();
        let blocks = match &self.backend {
            Backend::Redis(backend) if backend.is_passive() => Blocks::Stay,
            _ => Blocks::Send,
        };
        errors = applied.follow(&entries, &self.target, time, blocks).await;
        drop(entries);
        let mut known = self.known();
        if matches!(self.backend, Backend::Memory(_)) {
            known.forget_ended(time.now_millis);
        }
        known.set_error(errors.values().next().cloned());
        errors
    }

    /// Applies one override to the policies of this process, or ends it. Returns the reason for which it could
    /// not.
    pub(super) async fn follow_one(&self, field: &str) -> Result<(), String> {
        let applied = timeout(TURN_TIMEOUT, self.applied.lock()).await;
        let mut applied =
            applied.map_err(|_| "the other overrides are applied first".to_owned())?;
        let (entries, time) = self.present();
        let entry = entries.get(field).cloned();
        // The next change finds no other handle, and need not copy all entries.
        drop(entries);
        let mut blocks = Blocks::Send;
        applied.follow_one(field, entry.as_ref(), &self.target, time, &mut blocks).await
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

    /// Sets the metric of the time since the store has answered.
    pub(super) fn measure(&self) {
        if matches!(self.backend, Backend::Redis(_)) {
            let unheard = self.unheard(&self.known());
            report::unheard(unheard);
        }
    }
}
