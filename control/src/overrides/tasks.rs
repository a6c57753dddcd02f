//! The tasks that follow the store and end overrides in time.

use std::{
    sync::{Arc, OnceLock, Weak},
    time::Duration,
};

use tokio::{
    task::AbortHandle,
    time::{Instant, MissedTickBehavior, interval_at, sleep},
};

use super::state::{Backend, OverridesState};

/// The tasks of overrides. They end with their owner.
#[derive(Debug, Default)]
pub(super) struct Tasks(OnceLock<Vec<AbortHandle>>);

/// The time between two polls.
const POLL_INTERVAL: Duration = Duration::from_secs(1);
/// The time between two looks for overrides that have ended.
const END_INTERVAL: Duration = Duration::from_millis(500);

impl Tasks {
    /// Starts the tasks, if they do not run.
    pub(super) fn start(&self, state: &Arc<OverridesState>) {
        self.0.get_or_init(|| {
            let end = tokio::spawn(end(Arc::downgrade(state))).abort_handle();
            match state.backend {
                Backend::Memory(_) => vec![end],
                Backend::Redis(_) => {
                    vec![end, tokio::spawn(poll(Arc::downgrade(state))).abort_handle()]
                }
            }
        });
    }
}

/// Ends overrides in time, also while the store does not answer, until their handles are dropped.
async fn end(state: Weak<OverridesState>) {
    loop {
        sleep(END_INTERVAL).await;
        let Some(state) = state.upgrade() else { return };
        state.measure();
        state.follow().await;
    }
}

/// Follows the store, until the handles of the overrides are dropped.
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

impl Drop for Tasks {
    fn drop(&mut self) {
        self.0.get().into_iter().flatten().for_each(AbortHandle::abort);
    }
}
