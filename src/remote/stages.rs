//! The path of a request through the stages to a remote store and back. The steps are those of
//! [`Stages::call_leased`].
//!
//! Steps that do not wait are functions and no futures, so a request that is decided without the store
//! needs no boxed future. A request that waits is one boxed future, which owns the charges and lends them
//! to each step.

use std::{sync::Arc, time::Duration};

use tokio::time::Instant;

use super::{
    background_task::BackgroundTask,
    breaker::{Breakers, CallOutcome, NodePermit, Permits, Rejected, SharedBreaker, prober},
    deadline::{self, Deadline},
    deny_cache::{DenyCache, TrackedRequest},
    fallback::{Cause, Fallback},
    found_keys::FoundKeys,
    leases::{self, Leases},
    moving_average::MovingAverage,
    owned_request::{OwnedRequest, charges_of_check},
    scheduling_delay::SchedulingDelay,
    store_call::{Sending, StoreCall},
};
use crate::{
    decision::{Source, StoreReply},
    error::Error,
    store::{Answer, NodeId, Request, Store},
    telemetry,
};

/// The stages of a [`Pipeline`](super::pipeline::Pipeline) and its store, which background tasks share.
#[derive(Debug)]
pub(super) struct Stages {
    pub(super) store: Box<dyn Store>,
    /// True if the store has breakers, deny caches and leases of its own, so that this pipeline has none,
    /// and does not measure it again.
    pub(super) is_protected: bool,
    /// The text of `Resilience::description`.
    pub(super) description: Box<str>,
    pub(super) deadline: Option<Duration>,
    pub(super) leases: Option<Leases>,
    /// True if the store [marks](Store::has_debt_marks) charges to token buckets with their debt.
    pub(super) has_debt_marks: bool,
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
    /// The replay of the backlog. A charge that fails stays in the backlog, so the fallback does
    /// not decide it.
    Replay,
    /// A renewal of leased units, or their refund. The fallback does not decide it.
    Lease,
}

impl Stages {
    /// Passes a request through all steps, and waits no longer than `limit`:
    ///
    /// 1. The stock of [leased](Leases) units pays the charges that it can. The next steps decide the
    ///    others.
    /// 2. If the [breaker](Breakers) of a node that the request depends on is open, the
    ///    [fallback](Fallback) decides.
    /// 3. If the [deny cache](DenyCache) implies that the store denies the check, the cache answers.
    /// 4. If the stock of a busy key is too small, the check waits for the renewal of the stock, and
    ///    begins again with step 1, at most twice. If the store does not answer the renewal within
    ///    `limit`, the fallback decides.
    /// 5. Each breaker of step 2 grants a [permit](NodePermit). If one rejects the request, the fallback
    ///    decides.
    /// 6. The store is called. It must answer by the [deadline](Deadline).
    /// 7. The breakers and the deny cache record the outcome.
    /// 8. If the store has failed, the fallback decides. If it has answered, the backlog of the
    ///    fallback is charged to it.
    ///
    /// Steps 2, 3 and 5 allocate only for a new node, or for a request that depends on several nodes.
    #[inline]
    pub(super) fn call_leased(
        self: &Arc<Self>,
        request: Request<'_>,
        limit: Option<Duration>,
    ) -> Answer {
        // 1 and 4.
        match &self.leases {
            Some(leases) if leases::concerns(request) => leases::call(self, leases, request, limit),
            _ => self.call(request, Origin::Caller, limit),
        }
    }

    /// Passes a request through the steps after the leases: 2, 3 and 5 to 8. It waits no longer than `limit`.
    pub(super) fn call(
        self: &Arc<Self>,
        request: Request<'_>,
        origin: Origin,
        limit: Option<Duration>,
    ) -> Answer {
        // The fallback refunds the units that it has admitted, resets the keys that it counts, and
        // knows the blocks by this process.
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
        let answer = match self.answer_early(request, origin) {
            Ok(tracked) => self.send(request, origin, tracked, limit.and_then(Deadline::new)),
            Err(answer) => answer,
        };
        found.join(answer)
    }

    /// Passes a request through the steps that may answer it without the store: 2 and 3.
    pub(super) fn answer_early(
        &self,
        request: Request<'_>,
        origin: Origin,
    ) -> Result<TrackedRequest, Answer> {
        // 2.
        if self.is_rejected(request) {
            return Err(Answer::ready(self.fall_back(request, Cause::Rejected, origin)));
        }
        // 3.
        let Some(deny_cache) = &self.deny_cache else { return Ok(TrackedRequest::default()) };
        deny_cache.begin(request).map_err(|denial| Answer::ready(Ok(denial)))
    }

    /// Sends a request to the store. The deny cache has begun to track it as `tracked`.
    pub(super) fn send(
        self: &Arc<Self>,
        request: Request<'_>,
        origin: Origin,
        tracked: TrackedRequest,
        deadline: Option<Deadline>,
    ) -> Answer {
        // 5.
        let start = Instant::now();
        let Ok(permits) = self.permits(request, start, origin) else {
            return Answer::ready(self.fall_back(request, Cause::Rejected, origin));
        };
        // 6.
        let mut sending = Sending { stages: self, request, unrecorded: Some((tracked, permits)) };
        let answer = deadline::send(&*self.store, request, deadline).now();
        let unrecorded = sending.unrecorded.take();
        match answer {
            Ok(reply) => {
                let unrecorded = unrecorded.unwrap_or_default();
                let time = Some(start.elapsed());
                Answer::ready(self.finish(Some(request), unrecorded, (reply, time), origin))
            }
            Err(answer) => {
                let stages = Arc::clone(self);
                let request = OwnedRequest::new(request);
                let mut call = StoreCall { stages, request, start, unrecorded };
                Answer::pending(async move {
                    let delay = &call.stages.scheduling_delay;
                    let reply = deadline::wait(answer, deadline, delay).await;
                    call.finish(reply, origin)
                })
            }
        }
    }

    /// Ends a request with steps 7 and 8. The reply has the [time](Self::store_time) that the store
    /// took.
    pub(super) fn finish(
        self: &Arc<Self>,
        request: Option<Request<'_>>,
        (tracked, permits): (TrackedRequest, Permits),
        (reply, time): (Result<StoreReply, Error>, Option<Duration>),
        origin: Origin,
    ) -> Result<StoreReply, Error> {
        // 7.
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
        // 8.
        match (reply, request) {
            (Ok(reply), _) => {
                self.start_replay();
                Ok(reply)
            }
            (Err(error), Some(request)) => self.fall_back(request, Cause::Failed(error), origin),
            (Err(error), None) => Err(error),
        }
    }

    /// Ends a call without a reply, in place of step 7.
    pub(super) fn abandon(
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

    /// Returns the time that the store has taken since `start`. Returns `None` in two cases:
    ///
    /// - The process was late meanwhile. Most of the time may have passed in its own run queue.
    /// - The store is [protected](Store::is_protected), so it measures itself.
    pub(super) fn store_time(&self, start: Instant) -> Option<Duration> {
        (!self.is_protected && !self.scheduling_delay.was_late_since(start))
            .then(|| start.elapsed())
    }

    /// Returns whether a breaker rejects this request in step 2.
    #[inline]
    pub(super) fn is_rejected(&self, request: Request<'_>) -> bool {
        self.breakers.as_ref().is_some_and(|breakers| breakers.rejects(&*self.store, request))
    }

    /// Requests the permits of step 5. Without breakers, every request goes through without one.
    fn permits(
        self: &Arc<Self>,
        request: Request<'_>,
        start: Instant,
        origin: Origin,
    ) -> Result<Permits, Rejected> {
        let Some(breakers) = &self.breakers else { return Ok(Permits::new()) };
        // Only the store can refund what it has charged, and a replay limits its own calls in
        // flight.
        let is_urgent = matches!(request, Request::Refund(_)) || origin == Origin::Replay;
        breakers.try_acquire(&*self.store, request, start, is_urgent, |breaker| {
            prober::start(self, breaker);
            // This request is the probe if there is no runtime for the prober, or one that does not
            // run it.
            breaker.try_probe(start)
        })
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
}
