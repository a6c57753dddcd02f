//! The state of overrides that all their handles share.

use std::{
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use plimsoll::clock::Clock;
use tokio::time::timeout;

use super::{
    AuditEntry, Change, OverrideError,
    apply::{Applied, Blocks, Target},
    audit::MemoryAudit,
    entry::{Edit, Entries, shown_key},
    known::Known,
    redis::{Changed, RedisBackend},
    report,
};

/// The longest wait for other requests of this process.
const TURN_TIMEOUT: Duration = Duration::from_secs(3);

/// The state of overrides that all their handles share.
#[derive(Debug)]
pub(super) struct OverridesState {
    pub(super) target: Target,
    pub(super) backend: Backend,
    clock: Arc<dyn Clock>,
    known: Mutex<Known>,
    applied: tokio::sync::Mutex<Applied>,
    /// The right to send a command to the store, until the reply is known.
    turn: tokio::sync::Mutex<()>,
}

/// The place that keeps the overrides.
#[derive(Debug)]
pub(super) enum Backend {
    Memory(MemoryAudit),
    Redis(Box<RedisBackend>),
}

impl OverridesState {
    pub(super) fn new(target: Target, backend: Backend, clock: Arc<dyn Clock>) -> Self {
        let last_reply_micros = clock.now().as_micros();
        if matches!(backend, Backend::Redis(_)) {
            report::describe();
        }
        Self {
            target,
            backend,
            clock,
            known: Mutex::new(Known { last_reply_micros, ..Known::default() }),
            applied: tokio::sync::Mutex::default(),
            turn: tokio::sync::Mutex::default(),
        }
    }

    /// Changes an override in the store.
    pub(super) async fn change(
        &self,
        field: &str,
        edit: Edit<'_>,
        entry: AuditEntry,
    ) -> Result<Change, OverrideError> {
        let backend = match &self.backend {
            Backend::Redis(backend) => backend,
            Backend::Memory(audit) => {
                let now_millis = self.now_millis();
                let change = self.known().change(field, edit, now_millis)?;
                audit.push_change(entry, &change);
                return Ok(change);
            }
        };
        let turn = self.turn().await?;
        let Changed { change, previous } = backend.change(field, edit, &entry).await?;
        if self.known().take(field, previous, &change) {
            return Ok(change);
        }
        // There were others since the last poll. The change is stored, also if they cannot be learnt now.
        if self.poll_in_turn(backend).await.is_err() {
            self.known().put(field, &change);
        }
        drop(turn);
        self.follow().await;
        Ok(change)
    }

    /// Waits until this task may send a command.
    async fn turn(&self) -> Result<tokio::sync::MutexGuard<'_, ()>, OverrideError> {
        let turn = timeout(TURN_TIMEOUT, self.turn.lock()).await;
        turn.map_err(|_| OverrideError::Unavailable {
            message: "an earlier request still waits for it".into(),
            may_apply: false,
        })
    }

    /// Learns the changes of other instances. Returns whether there were any.
    pub(super) async fn poll(&self) -> Result<bool, OverrideError> {
        let Backend::Redis(backend) = &self.backend else { return Ok(false) };
        let _turn = self.turn().await?;
        let before = self.known().version;
        let result = self.poll_in_turn(backend).await;
        let mut known = self.known();
        known.set_store_error(result.as_ref().err().map(|error| match error {
            OverrideError::Unavailable { message, .. } => {
                format!("Redis does not answer: {message}")
            }
            error => error.to_string(),
        }));
        result.map(|()| known.version != before)
    }

    /// Polls while this task has the turn.
    async fn poll_in_turn(&self, backend: &RedisBackend) -> Result<(), OverrideError> {
        let (version, ended, asked_millis) = {
            let known = self.known();
            let now_millis = self.now_millis_of(&known);
            (known.version, known.ended(now_millis), now_millis)
        };
        let poll = backend.poll(version, ended).await?;
        let lost = {
            let mut known = self.known();
            let has_lost = known.follow(poll, self.clock.now().as_micros(), asked_millis);
            has_lost.then(|| known.lost.clone())
        };
        if let Some(lost) = lost {
            let named = lost.values().map(|entry| {
                let shown = |key: &String| shown_key(&self.target.registry, &entry.policy, key);
                let key = entry.key.as_ref().map_or("all keys".to_owned(), shown);
                format!("{} under {}: {}", key, entry.policy, entry.kind)
            });
            report::lost(named);
        }
        Ok(())
    }

    /// Applies the overrides in force to the policies of this process. The status has the reason if some could
    /// not be applied.
    pub(super) async fn follow(&self) {
        // Otherwise another task applies them now.
        let Ok(mut applied) = timeout(TURN_TIMEOUT, self.applied.lock()).await else { return };
        let (entries, now_millis) = self.present();
        let error = applied.follow(&entries, &self.target, now_millis).await;
        drop(entries);
        let mut known = self.known();
        if matches!(self.backend, Backend::Memory(_)) {
            known.forget_ended(now_millis);
        }
        known.set_error(error);
    }

    /// Applies one override to the policies of this process, or ends it. Returns the reason for which it could
    /// not.
    pub(super) async fn follow_one(&self, field: &str) -> Result<(), String> {
        let applied = timeout(TURN_TIMEOUT, self.applied.lock()).await;
        let mut applied =
            applied.map_err(|_| "the other overrides are applied first".to_owned())?;
        let (entries, now_millis) = self.present();
        let entry = entries.get(field).cloned();
        // The next change finds no other handle, and need not copy all entries.
        drop(entries);
        let mut blocks = Blocks::Send;
        applied.follow_one(field, entry.as_ref(), &self.target, now_millis, &mut blocks).await
    }

    fn present(&self) -> (Arc<Entries>, u64) {
        let known = self.known();
        (Arc::clone(&known.entries), self.now_millis_of(&known))
    }

    pub(super) fn known(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the time of the store in milliseconds.
    pub(super) fn now_millis(&self) -> u64 {
        let known = self.known();
        self.now_millis_of(&known)
    }

    fn now_millis_of(&self, known: &Known) -> u64 {
        self.clock.now().as_micros().saturating_add_signed(known.ahead_micros) / 1_000
    }

    /// Returns the time since the store has answered.
    pub(super) fn since_reply(&self, known: &Known) -> Duration {
        match self.backend {
            Backend::Memory(_) => Duration::ZERO,
            Backend::Redis(_) => Duration::from_micros(
                self.clock.now().as_micros().saturating_sub(known.last_reply_micros),
            ),
        }
    }

    /// Sets the metric of the time since the store has answered.
    pub(super) fn measure(&self) {
        if matches!(self.backend, Backend::Redis(_)) {
            let since_reply = self.since_reply(&self.known());
            report::since_reply(since_reply);
        }
    }
}
