//! The return of a store that has failed: the probes, and the replay of the backlog.

use std::{sync::Arc, time::Duration};

use tokio::time::{Instant, sleep};

use super::{
    breaker::{Breakers, prober::Probed},
    replay,
    stages::{Origin, Stages},
};
use crate::{
    error::{Error, ErrorKind},
    policy::Charge,
    store::{Answer, NodeId, Request, probe},
};

/// The time between two rounds of a replay while the store refuses entries of the backlog. The
/// rounds end, because an entry is dropped when its units no longer count.
const REPLAY_INTERVAL: Duration = Duration::from_secs(1);

impl Stages {
    #[inline]
    pub(super) fn start_replay(self: &Arc<Self>) {
        if let Some(fallback) = &self.fallback
            && !fallback.backlog().is_empty()
        {
            // The task holds no strong handle while it sleeps, so that the limiter can end.
            let weak = Arc::downgrade(self);
            self.replay.start(|| async move {
                while let Some(stages) = weak.upgrade() {
                    if stages.replay_backlog().await {
                        return;
                    }
                    drop(stages);
                    sleep(REPLAY_INTERVAL).await;
                }
            });
        }
    }

    async fn replay_backlog(self: &Arc<Self>) -> bool {
        let Some(fallback) = &self.fallback else { return true };
        let has_nodes = self.breakers.as_ref().is_some_and(Breakers::has_nodes);
        let send = |charges: &[Charge<'_>]| {
            self.call(Request::Force(charges), Origin::Replay, self.deadline)
        };
        replay::replay(fallback, has_nodes, send).await
    }
}

impl Probed for Stages {
    fn probe(&self, node: NodeId, deadline: Instant) -> Option<Answer> {
        let store = &*self.store;
        if self.breakers.as_ref().is_none_or(|breakers| breakers.remove_if_gone(store, node)) {
            return None;
        }
        self.scheduling_delay.measure();
        Some(match probe::charge_on(store, node) {
            Some(charge) => store.call_by(Request::Force(&[charge]), deadline.into_std()),
            None => Answer::ready(Err(Error::new(ErrorKind::Unavailable, "no key for the probe"))),
        })
    }

    fn probe_time(&self, start: Instant) -> Option<Duration> {
        self.store_time(start)
    }

    fn probe_timeout(&self) -> Option<Duration> {
        self.deadline
    }

    fn on_recovery(self: &Arc<Self>) {
        self.start_replay();
    }
}
