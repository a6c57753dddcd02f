//! The tasks that follow the store and end overrides in time.

use std::{
    sync::{Arc, OnceLock, Weak},
    time::Duration,
};

use tokio::{
    task::AbortHandle,
    time::{Instant, MissedTickBehavior, interval_at, sleep},
};

use super::shared::{Backend, Shared};

/// The tasks of overrides. They end with their owner.
#[derive(Debug, Default)]
pub(super) struct Tasks(OnceLock<Vec<AbortHandle>>);

/// The time between two polls.
const POLL_INTERVAL: Duration = Duration::from_secs(1);
/// The time between two looks for overrides that have ended.
const END_INTERVAL: Duration = Duration::from_millis(500);

impl Tasks {
    /// Starts the tasks, if they do not run.
    pub(super) fn start(&self, shared: &Arc<Shared>) {
        self.0.get_or_init(|| {
            let end = tokio::spawn(end(Arc::downgrade(shared))).abort_handle();
            match shared.backend {
                Backend::Memory(_) => vec![end],
                Backend::Redis(_) => {
                    vec![end, tokio::spawn(poll(Arc::downgrade(shared))).abort_handle()]
                }
            }
        });
    }
}

/// Ends overrides in time, also while the store does not answer, until their handles are dropped.
async fn end(shared: Weak<Shared>) {
    loop {
        sleep(END_INTERVAL).await;
        let Some(shared) = shared.upgrade() else { return };
        shared.measure();
        // The errors are in the status, and the next round tries again.
        drop(shared.follow().await);
    }
}

/// Follows the store, until the handles of the overrides are dropped.
async fn poll(shared: Weak<Shared>) {
    // The first poll was made before this task was started.
    let mut interval = interval_at(Instant::now() + POLL_INTERVAL, POLL_INTERVAL);
    interval.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        interval.tick().await;
        let Some(shared) = shared.upgrade() else { return };
        // An error is in the status, and the next poll tries again.
        if shared.poll().await.is_ok_and(|has_changed| has_changed) {
            drop(shared.follow().await);
        }
    }
}

impl Drop for Tasks {
    fn drop(&mut self) {
        self.0.get().into_iter().flatten().for_each(AbortHandle::abort);
    }
}
