//! The guarded store: the path of a request to a remote store and back. The steps are those of
//! [`Guarded::call`].
//!
//! Steps that do not wait are functions and no futures, so a request that is decided without the store
//! needs no boxed future. A request that waits is one boxed future, which owns the charges and lends them
//! to each step.

use std::{sync::Arc, time::Duration};

use tokio::time::{Instant, sleep};

use super::{
    breaker::{
        Breakers, CallOutcome, NodePermit, Permits, Rejected, SharedBreaker,
        prober::{self, Probed},
    },
    deadline::{self, Deadline},
    deny_cache::{DenyCache, TrackedRequest},
    fallback::{Cause, Fallback, FoundKeys, REPLAY_INTERVAL, replay},
    moving_average::MovingAverage,
    scheduling_delay::SchedulingDelay,
};
use crate::{
    decision::{Source, StoreReply},
    error::{Effect, Error, ErrorKind},
    policy::Charge,
    runtime::BackgroundTask,
    store::{Answer, NodeId, OwnedRequest, Request, Store},
    telemetry,
};

/// A remote store and its guards, each of which may be missing.
#[derive(Debug)]
pub(super) struct Guarded {
    pub(super) store: Box<dyn Store>,
    /// True if the store has breakers and deny caches of its own, so that it has none here, and is not
    /// measured again.
    pub(super) is_protected: bool,
    pub(super) deadline: Option<Duration>,
    pub(super) breakers: Option<Breakers>,
    pub(super) deny_cache: Option<DenyCache>,
    pub(super) fallback: Option<Fallback>,
    pub(super) replay: BackgroundTask,
    pub(super) store_times: MovingAverage,
    pub(super) scheduling_delay: SchedulingDelay,
}

/// The origin of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Origin {
    Caller,
    /// A task that handles failures itself, so the fallback does not decide the request.
    Task,
    /// The replay of the backlog. Like a [task](Self::Task), but not subject to the breakers' limits of
    /// calls in flight, because it limits its own calls.
    Replay,
}

impl Guarded {
    /// Passes a request through all steps, and waits no longer than `limit`.
    #[inline]
    pub(super) fn call(
        self: &Arc<Self>,
        request: Request<'_>,
        origin: Origin,
        limit: Option<Duration>,
    ) -> Answer {
        self.call_by(request, origin, || limit.and_then(Deadline::new))
    }

    /// Passes a request through all steps, and waits no longer than until the `deadline`, which is asked
    /// for in step 5:
    ///
    /// 1. The [fallback](Fallback) refunds the units that it has admitted, resets the keys that it
    ///    counts, and blocks keys in this process.
    /// 2. If the [breaker](Breakers) of a node that the request depends on is open, the fallback
    ///    decides.
    /// 3. If the [deny cache](DenyCache) implies that the store denies the check, the cache answers.
    /// 4. Each breaker of step 2 grants a [permit](NodePermit). If one rejects the request, the fallback
    ///    decides.
    /// 5. The store is called. It must answer by the [deadline](Deadline).
    /// 6. The breakers and the deny cache record the outcome.
    /// 7. If the store has failed, the fallback decides. If it has answered, the backlog of the
    ///    fallback is charged to it.
    ///
    /// Steps 2 to 4 allocate only for a new node, or for a request that depends on several nodes.
    pub(super) fn call_by(
        self: &Arc<Self>,
        request: Request<'_>,
        origin: Origin,
        deadline: impl FnOnce() -> Option<Deadline>,
    ) -> Answer {
        // 1.
        let found = match (request, &self.fallback) {
            (Request::Refund(receipt), Some(fallback)) if receipt.source() == Source::Fallback => {
                return Answer::ready(Ok(fallback.refund(receipt)));
            }
            (Request::Reset(charges), Some(fallback)) => fallback.reset(charges),
            (Request::Block(..) | Request::Unblock(_), Some(fallback)) => {
                fallback.block_or_unblock(request)
            }
            _ => FoundKeys::default(),
        };
        // 2 and 3.
        let tracked = match self.begin(request, origin) {
            Ok(tracked) => tracked,
            Err(reply) => return found.add_to(Answer::ready(reply)),
        };
        // 4.
        let start = Instant::now();
        let Ok(permits) = self.permits(request, start, origin) else {
            let reply = self.fall_back(request, Cause::Rejected, origin);
            return found.add_to(Answer::ready(reply));
        };
        // 5.
        let deadline = deadline();
        let mut sending = Sending { guarded: self, request, unrecorded: Some((tracked, permits)) };
        let answer = deadline::send(&*self.store, request, deadline).now();
        let unrecorded = sending.unrecorded.take();
        found.add_to(match answer {
            Ok(reply) => {
                let unrecorded = unrecorded.unwrap_or_default();
                let time = Some(start.elapsed());
                Answer::ready(self.finish(Some(request), unrecorded, (reply, time), origin))
            }
            Err(answer) => {
                let guarded = Arc::clone(self);
                let request = OwnedRequest::new(request);
                let mut call = StoreCall { guarded, request, start, unrecorded };
                Answer::pending(async move {
                    let delay = &call.guarded.scheduling_delay;
                    let reply = deadline::wait(answer, deadline, delay).await;
                    // 6 and 7.
                    call.finish(reply, origin)
                })
            }
        })
    }

    /// Returns the answer to the request of a caller if the breaker or the deny cache gives one, in step
    /// 2 or 3.
    pub(super) fn answer_without_store(&self, request: Request<'_>) -> Option<Answer> {
        self.begin(request, Origin::Caller).err().map(Answer::ready)
    }

    /// Returns whether a breaker rejects this request in step 2.
    #[inline]
    pub(super) fn is_rejected(&self, request: Request<'_>) -> bool {
        self.breakers.as_ref().is_some_and(|breakers| breakers.rejects(&*self.store, request))
    }

    /// Decides a request in place of the store.
    pub(super) fn fall_back(
        &self,
        request: Request<'_>,
        cause: Cause,
        origin: Origin,
    ) -> Result<StoreReply, Error> {
        match &self.fallback {
            Some(fallback) if origin == Origin::Caller => fallback.execute(request, cause),
            _ => Err(cause.into_error()),
        }
    }

    /// Ends the background tasks.
    pub(super) fn stop(&self) {
        self.replay.stop();
        if let Some(breakers) = &self.breakers {
            breakers.stop();
        }
    }

    /// Passes a request through steps 2 and 3, which may answer it without the store.
    fn begin(
        &self,
        request: Request<'_>,
        origin: Origin,
    ) -> Result<TrackedRequest, Result<StoreReply, Error>> {
        // 2.
        if self.is_rejected(request) {
            return Err(self.fall_back(request, Cause::Rejected, origin));
        }
        // 3.
        let Some(deny_cache) = &self.deny_cache else { return Ok(TrackedRequest::default()) };
        deny_cache.begin(request).map_err(Ok)
    }

    /// Requests the permits of step 4. Without breakers, every request goes through without one.
    fn permits(
        self: &Arc<Self>,
        request: Request<'_>,
        start: Instant,
        origin: Origin,
    ) -> Result<Permits, Rejected> {
        let Some(breakers) = &self.breakers else { return Ok(Permits::new()) };
        // Only the store can refund what it has charged.
        let is_urgent = matches!(request, Request::Refund(_)) || origin == Origin::Replay;
        breakers.try_acquire(&*self.store, request, start, is_urgent, |breaker| {
            prober::start(self, breaker);
            // This request is the probe if there is no runtime for the prober, or one that does not
            // run it.
            breaker.try_probe(start)
        })
    }

    /// Ends a call with steps 6 and 7. The reply has the [time](Self::store_time) that the store took.
    fn finish(
        self: &Arc<Self>,
        request: Option<Request<'_>>,
        (tracked, permits): (TrackedRequest, Permits),
        (reply, time): (Result<StoreReply, Error>, Option<Duration>),
        origin: Origin,
    ) -> Result<StoreReply, Error> {
        // 6.
        let failed_node = reply.as_ref().err().and_then(Error::node);
        self.record(permits, |breaker| match failed_node {
            Some(node) if breaker.node() != NodeId(node) => CallOutcome::Unknown,
            _ => breaker.judge(&reply, time),
        });
        if let Some(cache) = &self.deny_cache {
            cache.record(tracked, charges_of_check(request), &reply);
        }
        if let Err(error) = &reply
            && error.is_unavailable()
            && !self.is_protected
        {
            telemetry::store_failed(error);
        }
        // 7.
        match (reply, request) {
            (Ok(reply), _) => {
                self.start_replay();
                Ok(reply)
            }
            (Err(error), Some(request)) => self.fall_back(request, Cause::Failed(error), origin),
            (Err(error), None) => Err(error),
        }
    }

    /// Ends a call without a reply, in place of step 6.
    fn abandon(
        self: &Arc<Self>,
        request: Option<Request<'_>>,
        (tracked, permits): (TrackedRequest, Permits),
        time: Option<Duration>,
    ) {
        self.record(permits, |breaker| breaker.judge_abandoned(time));
        if let Some(cache) = &self.deny_cache {
            cache.abandon(tracked, charges_of_check(request));
        }
    }

    /// Records the outcome of a call in the breaker of each node that it depended on.
    fn record(self: &Arc<Self>, permits: Permits, outcome: impl Fn(&SharedBreaker) -> CallOutcome) {
        let now = Instant::now();
        for NodePermit { breaker, permit } in permits {
            if breaker.record(permit, now, outcome(&breaker)) {
                prober::start(self, &breaker);
            }
        }
    }

    /// Returns the time that the store has taken since `start`. Returns `None` in two cases:
    ///
    /// - The process was late meanwhile. Most of the time may have passed in its own run queue.
    /// - The store is [protected](Store::is_protected), so it measures itself.
    fn store_time(&self, start: Instant) -> Option<Duration> {
        (!self.is_protected && !self.scheduling_delay.was_late_since(start))
            .then(|| start.elapsed())
    }

    /// Starts to charge the backlog of the fallback to the store, if there is any.
    #[inline]
    fn start_replay(self: &Arc<Self>) {
        if let Some(fallback) = &self.fallback
            && !fallback.backlog().is_empty()
        {
            // The task holds no strong handle while it sleeps, so that the limiter can end.
            let weak = Arc::downgrade(self);
            self.replay.start(|| async move {
                while let Some(guarded) = weak.upgrade() {
                    if guarded.replay_backlog().await {
                        return;
                    }
                    drop(guarded);
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
        replay(fallback, has_nodes, send).await
    }
}

impl Probed for Guarded {
    fn probe(&self, node: NodeId, deadline: Instant) -> Option<Answer> {
        let store = &*self.store;
        if self.breakers.as_ref().is_none_or(|breakers| breakers.remove_if_gone(store, node)) {
            return None;
        }
        let Some(charge) = node.probe(|charge| store.node(charge)) else {
            let error = Error::new(ErrorKind::Unavailable, "no key for the probe");
            return Some(Answer::ready(Err(error)));
        };
        let answer = store.call(Request::Force(&[charge]), Some(deadline.into_std()));
        Some(Answer::pending(deadline::measured(answer, self.scheduling_delay.clone())))
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

/// A guard of a call that is being sent. If the store panics, the permits are returned.
struct Sending<'s> {
    guarded: &'s Arc<Guarded>,
    request: Request<'s>,
    /// `None` when the store has returned.
    unrecorded: Option<(TrackedRequest, Permits)>,
}

impl Drop for Sending<'_> {
    fn drop(&mut self) {
        if let Some(unrecorded) = self.unrecorded.take() {
            self.guarded.abandon(Some(self.request), unrecorded, None);
        }
    }
}

/// A call that waits for the store. If it is dropped before it ends, its caller has stopped
/// waiting.
struct StoreCall {
    guarded: Arc<Guarded>,
    request: Option<OwnedRequest>,
    start: Instant,
    /// The handles with which the deny cache and the breakers record the outcome. `None` once they
    /// have.
    unrecorded: Option<(TrackedRequest, Permits)>,
}

impl StoreCall {
    fn finish(
        &mut self,
        reply: Result<StoreReply, Error>,
        origin: Origin,
    ) -> Result<StoreReply, Error> {
        let time = self.guarded.store_time(self.start);
        // A call that was refused or not sent often takes no time. One that missed its deadline has
        // taken at least that long.
        let was_refused = reply.as_ref().is_err_and(|error| error.effect() == Effect::None);
        if let Some(time) = time
            && !was_refused
        {
            self.guarded.store_times.record(time);
            telemetry::store_answered(time);
        }
        let unrecorded = self.unrecorded.take().unwrap_or_default();
        let request = self.request.as_ref().map(OwnedRequest::lend);
        self.guarded.finish(request, unrecorded, (reply, time), origin)
    }
}

impl Drop for StoreCall {
    fn drop(&mut self) {
        if let Some(unrecorded) = self.unrecorded.take() {
            let time = self.guarded.store_time(self.start);
            let request = self.request.as_ref().map(OwnedRequest::lend);
            self.guarded.abandon(request, unrecorded, time);
        }
    }
}

/// Returns the charges of a check, and an empty slice for other requests.
fn charges_of_check<'r>(request: Option<Request<'r>>) -> &'r [Charge<'r>] {
    match request {
        Some(Request::Acquire(charges)) => charges,
        _ => &[],
    }
}
