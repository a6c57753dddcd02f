//! The state of overrides that all their handles share, and the task that follows the store.

use std::{
    sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak},
    time::Duration,
};

use metrics::{Unit, describe_counter, describe_gauge};
use plimsoll::clock::Clock;
use tokio::{
    task::AbortHandle,
    time::{Instant, MissedTickBehavior, interval_at, sleep, timeout},
};

use super::{
    AuditEntry, Change, OverrideError,
    apply::{Applied, Target},
    audit::MemoryAudit,
    entry::{Edit, Entries, Override, shown_key},
    known::Known,
    redis::{Changed, RedisBackend},
};

/// The time between two polls.
const POLL_INTERVAL: Duration = Duration::from_secs(1);
/// The time between two looks for overrides that have ended.
const END_INTERVAL: Duration = Duration::from_millis(500);
/// The longest wait for another task that applies overrides.
const APPLY_TIMEOUT: Duration = Duration::from_secs(3);
/// The lost overrides that a line of the log names.
const NAMED: usize = 20;

const SINCE_REPLY: &str = "plimsoll_overrides_seconds_since_reply";
const LOSSES: &str = "plimsoll_overrides_losses_total";

/// The state of overrides that all their handles share.
#[derive(Debug)]
pub(super) struct OverridesState {
    pub(super) target: Target,
    pub(super) backend: Backend,
    clock: Arc<dyn Clock>,
    known: Mutex<Known>,
    applied: tokio::sync::Mutex<Applied>,
    task: OnceLock<AbortHandle>,
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
            let since_reply = "The time since the Redis of the overrides answered.";
            describe_gauge!(SINCE_REPLY, Unit::Seconds, since_reply);
            let losses =
                "The times that Redis had lost overrides or their ends that this process knew.";
            describe_counter!(LOSSES, Unit::Count, losses);
            metrics::counter!(LOSSES).increment(0);
        }
        Self {
            target,
            backend,
            clock,
            known: Mutex::new(Known { last_reply_micros, ..Known::default() }),
            applied: tokio::sync::Mutex::default(),
            task: OnceLock::new(),
        }
    }

    /// Starts the task that follows the store and ends overrides in time, unless it runs. It ends when the handles of
    /// the overrides are dropped.
    pub(super) fn start(self: &Arc<Self>) {
        self.task.get_or_init(|| {
            let (polled, ended) = (Arc::downgrade(self), Arc::downgrade(self));
            // Overrides end also while the store does not answer.
            let run = async { tokio::join!(poll(polled), end(ended)) };
            tokio::spawn(run).abort_handle()
        });
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
        let Changed { change, previous } = backend.change(field, edit, &entry).await?;
        if self.known().take(field, previous, &change) {
            return Ok(change);
        }
        // There were others since the last poll. The change is stored, also if they cannot be learnt now. A poll for a
        // later change may have been faster, and knows this one.
        let _ = self.poll().await;
        if self.known().version < change.version {
            self.known().put(field, &change);
        }
        self.follow().await;
        Ok(change)
    }

    /// Learns the changes of other instances. Returns whether there were any.
    pub(super) async fn poll(&self) -> Result<bool, OverrideError> {
        let Backend::Redis(backend) = &self.backend else { return Ok(false) };
        let (version, asked) = {
            let known = self.known();
            (known.version, known.version_to_ask())
        };
        let poll = backend.poll(asked).await;
        let mut known = self.known();
        known.set_store_error(poll.as_ref().err().map(|error| match error {
            OverrideError::Unavailable { message, .. } => {
                format!("Redis does not answer: {message}")
            }
            error => error.to_string(),
        }));
        let poll = poll?;
        if known.version != version {
            // A change of this process came first, and the reply may be older. The next poll tells.
            return Ok(true);
        }
        if known.follow(poll, self.clock.now().as_micros()) {
            self.report_loss(&known);
        }
        Ok(known.version != version)
    }

    /// Applies the overrides in force to the policies of this process. The status has the reason if some could
    /// not be applied.
    pub(super) async fn follow(&self) {
        // Otherwise another task applies them now.
        let Ok(mut applied) = timeout(APPLY_TIMEOUT, self.applied.lock()).await else { return };
        let (entries, now_millis) = self.present();
        let error = applied.follow(&entries, &self.target, now_millis).await;
        drop(entries);
        let mut known = self.known();
        known.forget_ended(now_millis);
        known.set_error(error);
    }

    /// Applies one override to the policies of this process, or ends it. Returns the reason for which it could
    /// not.
    pub(super) async fn follow_one(&self, field: &str) -> Result<(), String> {
        let applied = timeout(APPLY_TIMEOUT, self.applied.lock()).await;
        let mut applied =
            applied.map_err(|_| "the other overrides are applied first".to_owned())?;
        let (entries, now_millis) = self.present();
        let entry = entries.get(field).cloned();
        // The next change finds no other handle, and need not copy all entries.
        drop(entries);
        applied.follow_one(field, entry.as_ref(), &self.target, now_millis).await
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

    /// Returns the time since the store has answered, and sets its metric.
    pub(super) fn since_reply(&self) -> Duration {
        if matches!(self.backend, Backend::Memory(_)) {
            return Duration::ZERO;
        }
        let now_micros = self.clock.now().as_micros();
        let since_reply = now_micros.saturating_sub(self.known().last_reply_micros);
        let since_reply = Duration::from_micros(since_reply);
        metrics::gauge!(SINCE_REPLY).set(since_reply.as_secs_f64());
        since_reply
    }

    /// Reports that the store had lost changes, and the overrides that are not in force any more.
    fn report_loss(&self, known: &Known) {
        metrics::counter!(LOSSES).increment(1);
        let named =
            known.lost.values().take(NAMED).map(|Override { policy, key, kind, .. }| {
                let shown = |key: &String| shown_key(&self.target.registry, policy, key);
                let key = key.as_ref().map_or("all keys".to_owned(), shown);
                format!("{key} under {policy}: {kind}")
            });
        let (count, named) = (known.lost.len(), named.collect::<Vec<_>>().join(", "));
        tracing::error!(
            target: "plimsoll",
            "Redis had lost changes: compare the overrides with the wanted ones. No longer in force are {count}: {named}"
        );
    }
}

/// Ends overrides in time.
async fn end(state: Weak<OverridesState>) {
    loop {
        sleep(END_INTERVAL).await;
        let Some(state) = state.upgrade() else { return };
        state.since_reply();
        state.follow().await;
    }
}

/// Follows the store.
async fn poll(state: Weak<OverridesState>) {
    // The first poll was made before this task was started.
    let mut interval = interval_at(Instant::now() + POLL_INTERVAL, POLL_INTERVAL);
    interval.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        interval.tick().await;
        let Some(state) = state.upgrade() else { return };
        // An error is in the status, and the next poll tries again.
        if state.poll().await.is_ok_and(|has_changed| has_changed) {
            state.follow().await;
        }
    }
}

impl Drop for OverridesState {
    fn drop(&mut self) {
        if let Some(task) = self.task.get() {
            task.abort();
        }
    }
}
