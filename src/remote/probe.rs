//! The probes of the guarded store, which a [prober](super::breaker::prober) sends while a breaker is open.

use std::{sync::Arc, time::Duration};

use tokio::time::Instant;

use super::{
    breaker::{SharedBreaker, prober::Probed},
    deadline,
    guarded::Guarded,
};
use crate::{
    runtime::TimeLimit,
    store::{Answer, Request},
};

impl Probed for Guarded {
    fn probe(&self, breaker: &SharedBreaker) -> Option<Answer> {
        let (store, node) = (&*self.store, breaker.node());
        let Some(charge) = node.probe(|charge| store.node(charge)) else {
            // No key depends on the node, so it has left the store.
            if let Some(breakers) = &self.breakers {
                breakers.remove(node);
            }
            return None;
        };
        // A slow probe counts as failed, so without a deadline it need not wait for longer.
        let limit = self.deadline.unwrap_or(breaker.slow());
        let at = TimeLimit::after(limit);
        let mut answer = store.call(Request::Force(&[charge]), Some(at.time().into_std()));
        let delay = self.delay_of_timers().cloned();
        Some(Answer::pending(async move {
            deadline::wait_until(&mut answer, at, limit, delay.as_ref()).await
        }))
    }

    fn probe_time(&self, start: Instant) -> Option<Duration> {
        self.store_time(start)
    }

    fn on_recovery(self: &Arc<Self>) {
        self.start_replay();
    }
}
