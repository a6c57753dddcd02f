//! The state of overrides that all their handles share, and the task that follows Redis.

use std::{
    collections::VecDeque,
    sync::{Arc, MutexGuard, OnceLock, PoisonError, Weak},
    time::Duration,
};

use metrics::{Unit, describe_counter, describe_gauge};
use plimsoll::clock::Clock;
use tokio::{
    sync::{self, Mutex},
    task::AbortHandle,
    time::{sleep, timeout},
};

use super::{
    AuditEntry, Change, OverrideError,
    apply::{Applied, Round, Target},
    audit::MAX_AUDIT,
    entry::{Entries, Override, shown_key},
    known::{Edit, Known, note},
    redis::RedisBackend,
};
use crate::time::from_millis;

/// The time between two polls.
const POLL_INTERVAL: Duration = Duration::from_secs(1);
/// The time between two looks for overrides that have ended.
const END_INTERVAL: Duration = Duration::from_millis(500);
/// The longest wait for another task that asks Redis.
const BACKEND_TIMEOUT: Duration = Duration::from_secs(4);
/// The longest wait for another task that applies overrides.
const APPLY_TIMEOUT: Duration = Duration::from_secs(3);
/// The attempts at a change while other instances change overrides at the same time.
const ATTEMPTS: usize = 100;
/// The lost overrides that a line of the log names.
const NAMED: usize = 20;

const SINCE_REPLY: &str = "plimsoll_overrides_seconds_since_reply";
const LOSSES: &str = "plimsoll_overrides_losses_total";

/// The state of overrides that all their handles share.
pub(super) struct OverridesState {
    pub(super) target: Target,
    /// One task asks it at a time, so that its answers are known in their order.
    backend: Mutex<Backend>,
    clock: Arc<dyn Clock>,
    known: std::sync::Mutex<Known>,
    applied: Mutex<Applied>,
    task: OnceLock<AbortHandle>,
}

/// The place that keeps the overrides and their audit log.
pub(super) enum Backend {
    /// The process, which knows all overrides. This is their audit log, the newest entry first.
    Memory(VecDeque<AuditEntry>),
    Redis(Box<RedisBackend>),
}

impl OverridesState {
    pub(super) fn new(target: Target, backend: Backend, clock: Arc<dyn Clock>) -> Self {
        let mut known = Known::default();
        if let Backend::Redis(_) = backend {
            known.last_reply_micros = Some(clock.now().as_micros());
            describe_gauge!(SINCE_REPLY, Unit::Seconds, "The time since Redis has answered.");
            describe_counter!(LOSSES, Unit::Count, "The times that Redis had lost changes.");
            metrics::counter!(LOSSES).increment(0);
        }
        Self {
            target,
            backend: Mutex::new(backend),
            clock,
            known: std::sync::Mutex::new(known),
            applied: Mutex::default(),
            task: OnceLock::new(),
        }
    }

    /// Starts the task that follows Redis and ends overrides in time, unless it runs. It ends when the handles of
    /// the overrides are dropped.
    pub(super) fn start(self: &Arc<Self>) {
        self.task.get_or_init(|| {
            let state = Arc::downgrade(self);
            // Overrides end also while Redis does not answer.
            let run = async move { tokio::join!(poll(&state), end(&state)) };
            tokio::spawn(run).abort_handle()
        });
    }

    /// Sets an override, or removes it for `None`, if it has the expected version.
    pub(super) async fn change(
        &self,
        field: &str,
        new: Option<&Override>,
        expected: Option<u64>,
        mut entry: AuditEntry,
    ) -> Result<Change, OverrideError> {
        let mut backend = self.backend().await?;
        for _ in 0..ATTEMPTS {
            self.learn(&mut backend).await?;
            let edit = {
                let known = self.known();
                known.edit(field, new, expected, self.now_micros(&known))?
            };
            let Change { before, after, version, .. } = &edit.change;
            entry.time = from_millis(version / 1_000);
            entry.before = before.as_ref().map(|before| before.kind.to_string());
            entry.after = after.as_ref().map(|after| after.kind.to_string());
            entry.until = after.as_ref().and_then(|after| after.until);
            entry.version = Some(*version);
            if backend.write(&entry, Some(&edit)).await? {
                return Ok(self.known().put(edit));
            }
        }
        Err(OverrideError::not_sent("other instances change overrides all the time"))
    }

    /// Learns the changes of other instances, and applies them.
    pub(super) async fn poll(&self) -> Result<(), OverrideError> {
        let mut backend = self.backend().await?;
        self.learn(&mut backend).await
    }

    async fn learn(&self, backend: &mut Backend) -> Result<(), OverrideError> {
        let version = self.known().version;
        let Backend::Redis(redis) = backend else { return Ok(()) };
        let polled = redis.poll(version).await;
        {
            let mut known = self.known();
            note(
                &mut known.store_error,
                polled.as_ref().err().map(OverrideError::cause),
                "the overrides stay as they are, and cannot be changed",
                "Redis answers: the overrides are followed again",
            );
            let (now_micros, stored) = polled?;
            if known.follow(now_micros, stored, self.clock.now().as_micros()) {
                self.report_loss(&known);
            }
            if known.version == version {
                return Ok(());
            }
        }
        self.follow().await;
        Ok(())
    }

    pub(super) async fn backend(&self) -> Result<sync::MutexGuard<'_, Backend>, OverrideError> {
        let backend = timeout(BACKEND_TIMEOUT, self.backend.lock()).await;
        backend.map_err(|_| OverrideError::not_sent("other requests are waiting for it"))
    }

    /// Applies the overrides in force to the policies of this process. The status has the reason if some could
    /// not be applied.
    pub(super) async fn follow(&self) {
        // Otherwise another task applies them now.
        let Ok(mut applied) = timeout(APPLY_TIMEOUT, self.applied.lock()).await else { return };
        let mut round = self.round();
        let error = applied.follow(&self.entries(), &mut round).await;
        let over = "all overrides are applied again";
        note(&mut self.known().error, error, "an override is not applied here", over);
    }

    /// Applies one override to the policies of this process, or ends it. Returns the reason for which it could
    /// not.
    pub(super) async fn follow_one(&self, field: &str) -> Result<(), String> {
        let applied = timeout(APPLY_TIMEOUT, self.applied.lock()).await;
        let mut applied =
            applied.map_err(|_| "the other overrides are applied first".to_owned())?;
        // The next change finds no other handle, and need not copy all entries.
        let entry = self.entries().get(field).cloned();
        let mut round = self.round();
        applied.replace(field, entry.as_ref(), &mut round).await
    }

    /// Returns a pass over overrides at this time.
    fn round(&self) -> Round<'_> {
        Round { target: &self.target, now_millis: self.now_millis(), has_failed: false }
    }

    pub(super) fn entries(&self) -> Arc<Entries> {
        Arc::clone(&self.known().entries)
    }

    pub(super) fn known(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the time of Redis in milliseconds.
    pub(super) fn now_millis(&self) -> u64 {
        self.now_micros(&self.known()) / 1_000
    }

    fn now_micros(&self, known: &Known) -> u64 {
        self.clock.now().as_micros().saturating_add_signed(known.ahead_micros)
    }

    /// Returns the time since Redis has answered, and sets its metric. It is zero for overrides in memory.
    pub(super) fn since_reply(&self) -> Duration {
        let Some(last_micros) = self.known().last_reply_micros else { return Duration::ZERO };
        let since_micros = self.clock.now().as_micros().saturating_sub(last_micros);
        let since_reply = Duration::from_micros(since_micros);
        metrics::gauge!(SINCE_REPLY).set(since_reply.as_secs_f64());
        since_reply
    }

    /// Reports that Redis had lost changes, and the overrides that are not in force any more.
    fn report_loss(&self, known: &Known) {
        metrics::counter!(LOSSES).increment(1);
        let named =
            known.lost.values().take(NAMED).map(|Override { policy, key, kind, .. }| {
                let key = key.as_ref().map(|key| shown_key(&self.target.registry, policy, key));
                format!("{} under {policy}: {kind}", key.as_deref().unwrap_or("all keys"))
            });
        let named = named.collect::<Vec<_>>().join(", ");
        let count = known.lost.len();
        tracing::error!(
            target: "plimsoll",
            "Redis had lost changes: compare the overrides with the wanted ones. No longer in force are {count}: {named}"
        );
    }
}

impl Backend {
    /// Adds an entry to the audit log, and makes the edit that it is about. Returns false, and does neither, if the
    /// overrides have another version than the edit follows.
    pub(super) async fn write(
        &mut self,
        entry: &AuditEntry,
        edit: Option<&Edit>,
    ) -> Result<bool, OverrideError> {
        match self {
            Self::Memory(audit) => {
                audit.truncate(MAX_AUDIT - 1);
                audit.push_front(entry.clone());
                Ok(true)
            }
            Self::Redis(redis) => redis.write(entry, edit).await,
        }
    }

    /// Returns the newest entries of the audit log, the newest first.
    pub(super) async fn audit(&mut self, count: usize) -> Result<Vec<AuditEntry>, OverrideError> {
        match self {
            Self::Memory(audit) => Ok(audit.iter().take(count).cloned().collect()),
            Self::Redis(redis) => redis.audit(count).await,
        }
    }
}

/// Ends overrides in time.
async fn end(state: &Weak<OverridesState>) {
    loop {
        sleep(END_INTERVAL).await;
        let Some(state) = state.upgrade() else { return };
        state.since_reply();
        state.follow().await;
    }
}

/// Follows Redis.
async fn poll(state: &Weak<OverridesState>) {
    // The first poll was made before this task was started.
    loop {
        sleep(POLL_INTERVAL).await;
        let Some(state) = state.upgrade() else { return };
        // An error is in the status, and the next poll tries again.
        let _ = state.poll().await;
    }
}

impl Drop for OverridesState {
    fn drop(&mut self) {
        if let Some(task) = self.task.get() {
            task.abort();
        }
    }
}
