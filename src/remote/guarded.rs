//! The guarded store: the path of a request to a remote store and back. The steps are those of
//! [`Guarded::call`].
//!
//! Steps that do not wait are functions and no futures, so a request that is decided without the store
//! needs no boxed future. A request that waits is kept once, by the caller or by the [call](StoreCall),
//! and lent to each step.

use std::{mem, sync::Arc, time::Duration};

use tokio::time::{Instant, sleep};

use super::{
    breaker::{Breakers, CallOutcome, NodePermit, Permits, Rejected, SharedBreaker, prober},
    deadline::{self, Deadline},
    deny_cache::{DenyCache, TrackedRequest},
    fallback::{Cause, Fallback, FoundKeys, REPLAY_INTERVAL, replay},
};
use crate::{
    decision::{Source, StoreReply},
    error::{Effect, Error},
    policy::Charge,
    runtime::{BackgroundTask, MovingAverage, SchedulingDelay},
    store::{Answer, KeptRequest, NodeId, Request, Store, Traits},
    telemetry,
};

/// A remote store and its guards, each of which may be missing.
#[derive(Debug)]
pub(super) struct Guarded {
    pub(super) store: Box<dyn Store>,
    pub(super) traits: Traits,
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
        match self.send(request, origin, || limit.and_then(Deadline::new)) {
            Sent::Answered(reply) => Answer::ready(reply),
            Sent::Pending(call) => {
                let mut call = call.into_owned();
                Answer::pending(async move { call.wait().await })
            }
        }
    }

    /// Passes a request of a caller that keeps it through all steps, and waits no longer than `limit`.
    pub(super) async fn execute(
        self: &Arc<Self>,
        request: Request<'_>,
        origin: Origin,
        limit: Option<Duration>,
    ) -> Result<StoreReply, Error> {
        self.send(request, origin, || limit.and_then(Deadline::new)).reply().await
    }

    /// Passes a request through all steps, and waits no longer than until the `deadline`, which is asked
    /// for in step 5. The steps up to the call are taken here, the others when the call has ended:
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
    #[inline]
    pub(super) fn send<'r>(
        self: &Arc<Self>,
        request: Request<'r>,
        origin: Origin,
        deadline: impl FnOnce() -> Option<Deadline>,
    ) -> Sent<'r> {
        // 1.
        let found = match (request, &self.fallback) {
            (Request::Refund(receipt), Some(fallback)) if receipt.source() == Source::Fallback => {
                return Sent::Answered(Ok(fallback.refund(receipt)));
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
            Err(reply) => return Sent::Answered(found.add_to(reply)),
        };
        // 4.
        let start = Instant::now();
        let Ok(permits) = self.permits(request, start, origin) else {
            let reply = self.fall_back(request, Cause::Rejected, origin);
            return Sent::Answered(found.add_to(reply));
        };
        // 5.
        let deadline = deadline();
        let mut call = Unrecorded {
            guarded: Arc::clone(self),
            request: Some(KeptRequest::Lent(request)),
            origin,
            start,
            found,
            outcome_of: Some((tracked, permits)),
        };
        match deadline::send(&*self.store, request, deadline).now() {
            // 6 and 7.
            Ok(reply) => Sent::Answered(call.finish(reply, Some(start.elapsed()))),
            Err(answer) => Sent::Pending(StoreCall { call, answer, deadline }),
        }
    }

    /// Returns the reply to the request of a caller if the breaker or the deny cache gives one, in step
    /// 2 or 3.
    pub(super) fn reply_without_store(
        &self,
        request: Request<'_>,
    ) -> Option<Result<StoreReply, Error>> {
        self.begin(request, Origin::Caller).err()
    }

    /// Returns whether a breaker rejects this request in step 2.
    #[inline]
    pub(super) fn is_rejected(&self, request: Request<'_>) -> bool {
        self.breakers.as_ref().is_some_and(|breakers| breakers.rejects(&*self.store, request))
    }

    /// Returns whether a breaker rejects a request with this only charge in step 2.
    #[inline]
    pub(super) fn rejects_charge(&self, charge: &Charge<'_>) -> bool {
        self.breakers.as_ref().is_some_and(|breakers| breakers.rejects_charge(&*self.store, charge))
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
    /// - The store [protects itself](Traits::protects_itself), so it measures itself.
    pub(super) fn store_time(&self, start: Instant) -> Option<Duration> {
        (!self.traits.protects_itself && !self.scheduling_delay.was_late_since(start))
            .then(|| start.elapsed())
    }

    /// Returns where the timers of calls record how late they are, unless the store sets its own timers.
    pub(super) fn delay_of_timers(&self) -> Option<&SchedulingDelay> {
        (!self.traits.keeps_deadlines).then_some(&self.scheduling_delay)
    }

    /// Starts to charge the backlog of the fallback to the store, if there is any.
    #[inline]
    pub(super) fn start_replay(self: &Arc<Self>) {
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

/// A request that has gone through the steps up to the call.
#[expect(
    clippy::large_enum_variant,
    reason = "it is used at once, and a box would be an allocation more"
)]
pub(super) enum Sent<'r> {
    Answered(Result<StoreReply, Error>),
    Pending(StoreCall<'r>),
}

impl Sent<'_> {
    /// Waits for the reply.
    pub(super) async fn reply(self) -> Result<StoreReply, Error> {
        match self {
            Self::Answered(reply) => reply,
            Self::Pending(mut call) => call.wait().await,
        }
    }
}

/// A call that waits for the store. If it is dropped before it ends, its caller has stopped waiting.
pub(super) struct StoreCall<'r> {
    call: Unrecorded<'r>,
    answer: Answer,
    deadline: Option<Deadline>,
}

impl StoreCall<'_> {
    /// Copies the request, for a call that outlives its caller's.
    pub(super) fn into_owned(self) -> StoreCall<'static> {
        let Self { call, answer, deadline } = self;
        StoreCall { call: call.into_owned(), answer, deadline }
    }

    /// Waits for the answer, and takes the last steps.
    pub(super) async fn wait(&mut self) -> Result<StoreReply, Error> {
        let Self { call, answer, deadline } = self;
        let reply = deadline::wait(answer, *deadline, call.guarded.delay_of_timers()).await;
        let time = call.guarded.store_time(call.start);
        // A call that was refused or not sent often takes no time. One that missed its deadline has
        // taken at least that long.
        let was_refused = reply.as_ref().is_err_and(|error| error.effect() == Effect::None);
        if let Some(time) = time
            && !was_refused
        {
            call.guarded.store_times.record(time);
            telemetry::store_answered(time);
        }
        // 6 and 7.
        call.finish(reply, time)
    }

    /// Returns the charges of a check, a peek or forced charges.
    pub(super) fn charges(&self) -> &[Charge<'_>] {
        self.call.charges()
    }
}

/// A call whose outcome is not recorded yet. If it is dropped, the store has panicked or the caller has
/// stopped waiting.
struct Unrecorded<'r> {
    guarded: Arc<Guarded>,
    /// `None` for a request whose charges are not needed any more.
    request: Option<KeptRequest<'r>>,
    origin: Origin,
    start: Instant,
    found: FoundKeys,
    /// The handles with which the deny cache and the breakers record the outcome. `None` once they
    /// have.
    outcome_of: Option<(TrackedRequest, Permits)>,
}

impl Unrecorded<'_> {
    fn into_owned(mut self) -> Unrecorded<'static> {
        Unrecorded {
            guarded: Arc::clone(&self.guarded),
            request: self.request.take().and_then(KeptRequest::into_owned),
            origin: self.origin,
            start: self.start,
            found: mem::take(&mut self.found),
            outcome_of: self.outcome_of.take(),
        }
    }

    /// Takes steps 6 and 7. `time` is that which the store took, if it is known.
    fn finish(
        &mut self,
        reply: Result<StoreReply, Error>,
        time: Option<Duration>,
    ) -> Result<StoreReply, Error> {
        let guarded = &self.guarded;
        // 6.
        let (tracked, permits) = self.outcome_of.take().unwrap_or_default();
        let failed_node = reply.as_ref().err().and_then(Error::node);
        guarded.record(permits, |breaker| match failed_node {
            Some(node) if breaker.node() != NodeId(node) => CallOutcome::Unknown,
            _ => breaker.judge(&reply, time),
        });
        if let Some(cache) = &guarded.deny_cache {
            cache.record(tracked, self.charges(), &reply);
        }
        // 7.
        let error = match reply {
            Ok(_) => {
                guarded.start_replay();
                return self.found.add_to(reply);
            }
            Err(error) => error,
        };
        if error.is_unavailable() && !guarded.traits.protects_itself {
            telemetry::store_failed(&error);
        }
        self.found.add_to(match &self.request {
            Some(request) => guarded.fall_back(request.lend(), Cause::Failed(error), self.origin),
            None => Err(error),
        })
    }

    fn charges(&self) -> &[Charge<'_>] {
        self.request.as_ref().map_or(&[], |request| request.lend().slice())
    }
}

impl Drop for Unrecorded<'_> {
    fn drop(&mut self) {
        let Some((tracked, permits)) = self.outcome_of.take() else { return };
        let time = self.guarded.store_time(self.start);
        self.guarded.record(permits, |breaker| breaker.judge_abandoned(time));
        if let Some(cache) = &self.guarded.deny_cache {
            cache.abandon(tracked, self.charges());
        }
    }
}
