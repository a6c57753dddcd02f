//! The probes of the guarded store, which a [prober](super::breaker::prober) sends while a breaker is open.

use std::{slice, sync::Arc, time::Duration};

use tokio::time::Instant;

use super::{
    breaker::{SharedBreaker, prober::Probed},
    deadline::{self, Deadline},
    guarded::{Guarded, Guards},
};
use crate::store::{Answer, Request};

impl Probed for Guards {
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
        let request = Request::Force(slice::from_ref(&charge));
        Some(deadline::send(store, request, Deadline::new(limit), self.delay_of_timers()))
    }

    fn probe_time(&self, start: Instant) -> Option<Duration> {
        self.store_time(start)
    }

    fn on_recovery(self: &Arc<Self>) {
        Guarded(Arc::clone(self)).start_replay();
    }
}
