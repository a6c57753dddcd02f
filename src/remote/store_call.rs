//! The guards of a call to the store, which end it if its caller or the store does not.

use std::sync::Arc;

use tokio::time::Instant;

use super::{
    breaker::Permits,
    deny_cache::TrackedRequest,
    owned_request::OwnedRequest,
    stages::{Origin, Stages},
};
use crate::{
    decision::StoreReply,
    error::{Effect, Error},
    store::Request,
    telemetry,
};

/// A guard of a call that is being sent. If the store panics, the permit is returned.
pub(super) struct Sending<'s> {
    pub(super) stages: &'s Arc<Stages>,
    pub(super) request: Request<'s>,
    /// `None` when the store has returned.
    pub(super) unrecorded: Option<(TrackedRequest, Permits)>,
}

impl Drop for Sending<'_> {
    fn drop(&mut self) {
        if let Some(unrecorded) = self.unrecorded.take() {
            self.stages.abandon(Some(self.request), unrecorded, None);
        }
    }
}

/// A call that waits for the store. If it is dropped before it ends, its caller has stopped
/// waiting.
pub(super) struct StoreCall {
    pub(super) stages: Arc<Stages>,
    pub(super) request: OwnedRequest,
    pub(super) start: Instant,
    /// The handles with which the deny cache and the breaker record the outcome. `None` once they
    /// have.
    pub(super) unrecorded: Option<(TrackedRequest, Permits)>,
}

impl StoreCall {
    pub(super) fn finish(
        &mut self,
        reply: Result<StoreReply, Error>,
        origin: Origin,
    ) -> Result<StoreReply, Error> {
        let time = self.stages.store_time(self.start);
        // A call that was refused or not sent often takes no time. One that missed its deadline has
        // taken at least that long.
        let was_refused = reply.as_ref().is_err_and(|error| error.effect() == Effect::None);
        if let Some(time) = time
            && !was_refused
        {
            self.stages.store_times.record(time);
            telemetry::store_answered(time);
        }
        let unrecorded = self.unrecorded.take().unwrap_or_default();
        self.stages.finish(self.request.lend(), unrecorded, (reply, time), origin)
    }
}

impl Drop for StoreCall {
    fn drop(&mut self) {
        if let Some(unrecorded) = self.unrecorded.take() {
            let time = self.stages.store_time(self.start);
            self.stages.abandon(self.request.lend(), unrecorded, time);
        }
    }
}
