//! The pipeline: the path of a request through the stages to a remote store and back.

use std::{slice, sync::Arc, time::Duration};

use tokio::time::{Instant, sleep};

use super::{
    Resilience,
    background_task::BackgroundTask,
    breaker::{
        Breakers, CallOutcome, NodePermit, Permits, Rejected, SharedBreaker, prober, prober::Probed,
    },
    deadline::{self, Deadline},
    deny_cache::{DenyCache, Watch},
    fallback::{Cause, Fallback},
    moving_average::MovingAverage,
    owned_request::{OwnedRequest, charges_of_check},
    replay,
    scheduling_delay::SchedulingDelay,
    store_call::{Sending, StoreCall},
};
use crate::{
    decision::{Source, StoreReply},
    error::{Error, ErrorKind},
    policy::Charge,
    store::{Answer, NodeId, Request, Status, Store, probe},
    telemetry,
};

/// A remote store and the stages that protect its callers, each of which may be missing.
///
/// [`call`](Self::call) passes a request through these steps:
///
/// 1. If the [breaker](Breakers) of a node that the request depends on is open, the
///    [fallback](Fallback) decides.
/// 2. If the [deny cache](DenyCache) implies that the store denies the check, the cache answers.
/// 3. Each of these breakers grants a [permit](NodePermit). If one rejects the request, the
///    fallback decides.
/// 4. The store is called. It must answer by the [deadline](Deadline).
/// 5. The breakers and the deny cache record the outcome.
/// 6. If the store has failed, the fallback decides. If it has answered, the backlog of the
///    fallback is charged to it.
///
/// Steps 1 to 3 do not wait. They allocate only for a new node, or for a request that depends on
/// several nodes. A request that waits for the store is one boxed future, which owns the charges and
/// lends them to each stage.
#[derive(Debug)]
pub(crate) struct Pipeline(Arc<Stages>);

#[derive(Debug)]
pub(super) struct Stages {
    store: Box<dyn Store>,
    /// The text of [`Resilience::description`].
    description: Box<str>,
    deadline: Option<Duration>,
    breakers: Option<Breakers>,
    deny_cache: Option<DenyCache>,
    fallback: Option<Fallback>,
    replay: BackgroundTask,
    pub(super) store_times: MovingAverage,
    scheduling_delay: SchedulingDelay,
}

/// The time between two rounds of a replay while the store refuses entries of the backlog. The
/// rounds end, because an entry is dropped when its units no longer count.
const REPLAY_INTERVAL: Duration = Duration::from_secs(1);

/// The origin of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Origin {
    Caller,
    /// The replay of the backlog. A charge that fails stays in the backlog, so the fallback does
    /// not decide it.
    Replay,
}

impl Pipeline {
    pub(super) fn new(store: Box<dyn Store>, config: Resilience) -> Self {
        // A request may arrive at the store after its caller has stopped waiting, but rarely later
        // than another deadline.
        let max_delay = config.deadline.unwrap_or(Resilience::DEADLINE).saturating_mul(2);
        let description = config.description().into();
        let deny_cache =
            config.deny_cache.then(|| DenyCache::new(Arc::clone(&config.clock), max_delay));
        let fallback = config.fallback.map(|mut memory| {
            memory.clock = config.clock;
            Fallback::new(memory, config.instances)
        });
        Self(Arc::new(Stages {
            store,
            description,
            deadline: config.deadline,
            breakers: config.breaker.map(Breakers::new),
            deny_cache,
            fallback,
            replay: BackgroundTask::default(),
            store_times: MovingAverage::default(),
            scheduling_delay: SchedulingDelay::new(),
        }))
    }

    /// Executes a request.
    #[inline]
    pub(crate) fn call(&self, request: Request<'_>) -> Answer {
        self.0.call(request, Origin::Caller)
    }

    /// Returns the fallback if it decides a check with this one charge because the breaker is open.
    ///
    /// This is step 1 of [`call`](Self::call), without an [`Answer`].
    #[inline]
    pub(crate) fn fallback_for(&self, charge: &Charge<'_>) -> Option<&Fallback> {
        let is_open = self.0.is_rejected(Request::Acquire(slice::from_ref(charge)));
        self.0.fallback.as_ref().filter(|fallback| is_open && fallback.decides_alone(charge))
    }

    /// Returns the descriptions of the store and of the stages around it.
    pub(crate) fn description(&self) -> String {
        format!("{}; {}", self.0.store.description(), self.0.description)
    }

    /// Returns the status of the store and of the stages around it.
    pub(crate) fn status(&self) -> Status {
        let Stages { store, breakers, fallback, store_times, scheduling_delay, .. } = &*self.0;
        let mut status = store.status();
        if let Some(breakers) = breakers {
            status = breakers.add_to(status);
        }
        status.latency = store_times.get().or(status.latency);
        status.scheduling_delay = scheduling_delay.average().or(status.scheduling_delay);
        status.memory = fallback.as_ref().map(Fallback::stats).or(status.memory);
        status
    }
}

impl Drop for Pipeline {
    fn drop(&mut self) {
        self.0.replay.stop();
        if let Some(breakers) = &self.0.breakers {
            breakers.stop();
        }
    }
}

impl Stages {
    fn call(self: &Arc<Self>, request: Request<'_>, origin: Origin) -> Answer {
        // The fallback refunds the units that it has admitted, resets the keys that it counts, and
        // knows the blocks by this process.
        match (request, &self.fallback) {
            (Request::Refund(receipt), Some(fallback)) if receipt.source() == Source::Fallback => {
                return Answer::ready(Ok(fallback.refund(receipt)));
            }
            (Request::Reset(charges), Some(fallback)) => fallback.reset(charges),
            (Request::Block(..) | Request::Unblock(_), Some(fallback)) => {
                fallback.block_or_unblock(request);
            }
            _ => {}
        }
        // 1.
        if self.is_rejected(request) {
            return Answer::ready(self.fall_back(request, Cause::Rejected, origin));
        }
        // 2.
        let watch = match self.deny_cache.as_ref().map(|cache| cache.begin(request)) {
            None => Watch::default(),
            Some(Ok(watch)) => watch,
            Some(Err(denial)) => return Answer::ready(Ok(denial)),
        };
        // 3.
        let start = Instant::now();
        let Ok(permits) = self.permits(request, start, origin) else {
            return Answer::ready(self.fall_back(request, Cause::Rejected, origin));
        };
        // 4.
        let deadline = self.deadline.and_then(Deadline::new);
        let mut sending = Sending { stages: self, request, unrecorded: Some((watch, permits)) };
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

    /// Ends a request with steps 5 and 6. The reply has the [time](Self::store_time) that the store
    /// took.
    pub(super) fn finish(
        self: &Arc<Self>,
        request: Option<Request<'_>>,
        (watch, permits): (Watch, Permits),
        (reply, time): (Result<StoreReply, Error>, Option<Duration>),
        origin: Origin,
    ) -> Result<StoreReply, Error> {
        // 5.
        let failed_node = reply.as_ref().err().and_then(Error::node);
        self.record(permits, |breaker| match failed_node {
            Some(node) if breaker.node() != NodeId(node) => CallOutcome::Unknown,
            _ => breaker.judge(&reply, time),
        });
        if let Some(cache) = &self.deny_cache {
            cache.record(watch, charges_of_check(request), &reply);
        }
        if let Err(error) = &reply
            && error.is_unavailable()
        {
            telemetry::store_failed(error);
        }
        // 6.
        match (reply, request) {
            (Ok(reply), _) => {
                self.start_replay();
                Ok(reply)
            }
            (Err(error), Some(request)) => self.fall_back(request, Cause::Failed(error), origin),
            (Err(error), None) => Err(error),
        }
    }

    /// Ends a call without a reply, in place of step 5.
    pub(super) fn abandon(
        self: &Arc<Self>,
        request: Option<Request<'_>>,
        (watch, permits): (Watch, Permits),
        time: Option<Duration>,
    ) {
        self.record(permits, |breaker| breaker.judge_abandoned(time));
        if let Some(cache) = &self.deny_cache {
            cache.abandon(watch, charges_of_check(request));
        }
    }

    /// Returns the time that the store has taken since `start`. Returns `None` if the process was
    /// late meanwhile, because most of the time may be that of its own run queue.
    pub(super) fn store_time(&self, start: Instant) -> Option<Duration> {
        (!self.scheduling_delay.was_late_since(start)).then(|| start.elapsed())
    }

    /// Returns whether a breaker rejects this request in step 1.
    #[inline]
    fn is_rejected(&self, request: Request<'_>) -> bool {
        self.breakers.as_ref().is_some_and(|breakers| breakers.reject(&*self.store, request))
    }

    /// Requests the permits of step 3. Without breakers, every request goes through without one.
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

    fn fall_back(
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

    #[inline]
    fn start_replay(self: &Arc<Self>) {
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
        let send = |charges: &[Charge<'_>]| self.call(Request::Force(charges), Origin::Replay);
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

impl Resilience {
    /// Creates the pipeline to `store`, with the stages of this configuration.
    pub(crate) fn protect(self, store: impl Store) -> Pipeline {
        Pipeline::new(Box::new(store), self)
    }
}
