//! The state of overrides that all their handles share, and the task that follows Redis.

use std::{
    sync::{Arc, MutexGuard, Once, PoisonError, Weak},
    time::Duration,
};

use metrics::{Unit, describe_counter, describe_gauge};
use plimsoll::clock::Clock;
use tokio::{
    sync::{self, Mutex},
    time::{sleep, timeout},
};

use super::{
    OverrideError,
    apply::{Applied, Round, Target},
    backend::Backend,
    entry::{Entries, Override, shown_key},
    known::{Known, note},
};
use crate::{
    Fleet, HitRates, Instance,
    fleet::{Added, Announcer},
};

/// The time between two polls.
const POLL_INTERVAL: Duration = Duration::from_secs(1);
/// The time between two looks for overrides that have ended.
const END_INTERVAL: Duration = Duration::from_millis(500);
/// The longest wait for another task that asks Redis.
const BACKEND_TIMEOUT: Duration = Duration::from_secs(3);
/// The longest wait for another task that applies overrides.
const APPLY_TIMEOUT: Duration = Duration::from_secs(3);
/// The lost overrides that a line of the log names.
const NAMED: usize = 20;

const SINCE_REPLY: &str = "plimsoll_overrides_seconds_since_reply";
const LOSSES: &str = "plimsoll_overrides_losses_total";

/// The reasons for which a fleet is not complete.
const NO_ANSWER: &str = "No data of other instances because Redis does not answer";
const NOT_ANNOUNCED: &str = "Redis has not taken the announcement of this instance";

/// The state of overrides that all their handles share.
pub(super) struct OverridesState {
    pub(super) target: Target,
    /// One task asks it at a time, so that its answers are known in their order.
    backend: Mutex<Backend>,
    clock: Arc<dyn Clock>,
    known: std::sync::Mutex<Known>,
    applied: Mutex<Applied>,
    announcer: std::sync::Mutex<Announcer>,
    /// The counts of this process that are in the sums of the fleet.
    added: std::sync::Mutex<Added>,
    tasks: Once,
}

impl OverridesState {
    pub(super) fn new(
        target: Target,
        backend: Backend,
        version: String,
        clock: Arc<dyn Clock>,
    ) -> Self {
        Announcer::describe();
        let announcer = Announcer::new(version, clock.now().as_micros());
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
            announcer: std::sync::Mutex::new(announcer),
            added: std::sync::Mutex::default(),
            tasks: Once::new(),
        }
    }

    /// Starts the tasks that follow Redis, announce this instance and end overrides in time, unless they run. They end
    /// when they find that the handles of the overrides are dropped. Overrides end also while Redis does not answer.
    pub(super) fn start(self: &Arc<Self>) {
        self.tasks.call_once(|| {
            tokio::spawn(poll(Arc::downgrade(self)));
            tokio::spawn(end(Arc::downgrade(self)));
        });
    }

    /// Learns the changes of other instances, and applies them. The same command announces this instance.
    pub(super) async fn poll(&self) -> Result<(), OverrideError> {
        let mut backend = self.backend().await?;
        self.learn(&mut backend).await
    }

    pub(super) async fn learn(&self, backend: &mut Backend) -> Result<(), OverrideError> {
        let version = self.known().version;
        let announcement = self.announcer().announce(self.clock.now().as_micros());
        let new_units = self.added().new_units(&announcement);
        let redis = match backend {
            Backend::Redis(redis) => redis,
            Backend::Memory { hours, .. } => {
                hours.add(self.now_millis(), &new_units);
                self.added().set(&announcement);
                return Ok(());
            }
        };
        let id = self.announcer().id().to_owned();
        let polled = redis.poll(version, &id, &announcement, &new_units).await;
        {
            let mut known = self.known();
            let error = polled.as_ref().err().map(ToString::to_string);
            let over = "Redis answers: the overrides are followed again";
            note(&mut known.store_error, error, "the overrides stay as they are", over);
            let (now_micros, stored) = polled?;
            self.added().set(&announcement);
            self.announcer().announced(now_micros, &announcement);
            let clock_micros = self.clock.now().as_micros();
            known.ahead_micros = now_micros as i64 - clock_micros as i64;
            known.last_reply_micros = Some(clock_micros);
            let Some(stored) = stored else { return Ok(()) };
            if known.follow(stored, now_micros / 1_000) {
                self.report_loss(&known);
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

    /// Returns the instances that have announced themselves, and this one, with the reason if it has not.
    pub(super) async fn fleet(&self) -> Fleet {
        let announcement = self.announcer().announce(self.clock.now().as_micros());
        let id = self.announcer().id().to_owned();
        let (now_millis, mut instances, error) = match self.instances().await {
            Ok(Some((now_millis, instances))) => (now_millis, instances, Some(NOT_ANNOUNCED)),
            Ok(None) => (self.now_millis(), Vec::new(), None),
            Err(_) => (self.now_millis(), Vec::new(), Some(NO_ANSWER)),
        };
        if instances.iter().any(|it| it.id == id) {
            return Fleet::new(&id, now_millis, instances);
        }
        instances.push(Instance::new(id.clone(), now_millis, announcement));
        Fleet { error: error.map(Into::into), ..Fleet::new(&id, now_millis, instances) }
    }

    /// Reads the time of Redis and the instances there. Returns `None` for overrides in memory.
    async fn instances(&self) -> Result<Option<(u64, Vec<Instance>)>, OverrideError> {
        // The poll finds out when Redis answers again.
        if let Some(error) = &self.known().store_error {
            return Err(OverrideError::not_sent(error));
        }
        match &mut *self.backend().await? {
            Backend::Redis(redis) => redis.instances().await.map(Some),
            Backend::Memory { .. } => Ok(None),
        }
    }

    /// Returns the hit rates of the fleet, or of this process for overrides in memory.
    pub(super) async fn hit_rates(&self) -> Result<HitRates, OverrideError> {
        // The poll finds out when Redis answers again.
        if let Some(error) = &self.known().store_error {
            return Err(OverrideError::not_sent(error));
        }
        let mut backend = self.backend().await?;
        self.learn(&mut backend).await?;
        match &mut *backend {
            Backend::Redis(redis) => {
                let (now_millis, hours) = redis.hours().await?;
                Ok(hours.rates(now_millis, false))
            }
            Backend::Memory { hours, .. } => Ok(hours.rates(self.now_millis(), true)),
        }
    }

    fn added(&self) -> MutexGuard<'_, Added> {
        self.added.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn announcer(&self) -> MutexGuard<'_, Announcer> {
        self.announcer.lock().unwrap_or_else(PoisonError::into_inner)
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

    /// Returns the time of Redis in microseconds.
    pub(super) fn now_micros(&self) -> u64 {
        self.clock.now().as_micros().saturating_add_signed(self.known().ahead_micros)
    }

    pub(super) fn now_millis(&self) -> u64 {
        self.now_micros() / 1_000
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

/// Ends overrides in time.
async fn end(state: Weak<OverridesState>) {
    loop {
        sleep(END_INTERVAL).await;
        let Some(state) = state.upgrade() else { return };
        state.since_reply();
        state.follow().await;
    }
}

/// Follows Redis.
async fn poll(state: Weak<OverridesState>) {
    // The first poll was made before this task was started.
    loop {
        sleep(POLL_INTERVAL).await;
        let Some(state) = state.upgrade() else { return };
        // An error is in the status, and the next poll tries again.
        let _ = state.poll().await;
    }
}
