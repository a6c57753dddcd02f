//! The guarded store: the path of a request to a remote store and back. [`Guarded::send`] lists the steps.
//!
//! A step that does not wait is a function and no future. Only a request that waits for the store owns its
//! charges, and it returns them with the reply.

use std::{
    mem,
    ops::Deref,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
    time::Duration,
};

use smallvec::SmallVec;
use tokio::time::Instant;

use super::{
    breaker::{Breakers, CallOutcome, NodePermit, Permits, SharedBreaker},
    clocks::Clocks,
    deny_cache::{DenyCache, TrackedRequest},
    fallback::{Cause, Fallback},
    instances::Instances,
};
use crate::{
    decision::{Checked, Source, StoreReply},
    error::{Effect, Error, ErrorKind},
    policy::{Charge, Charges},
    runtime::{
        BackgroundTask, MovingAverage, SchedulingDelay, TIMER_RESOLUTION, TimeLimit,
        runtime_with_timer,
    },
    store::{Answer, NodeId, ReplyFuture, Request, Store, Traits},
    telemetry,
};

/// A handle to a remote store and its guards. It is cheap to clone.
#[derive(Debug, Clone)]
pub(super) struct Guarded(pub(super) Arc<Guards>);

/// A remote store and its guards, each of which may be missing.
#[derive(Debug)]
pub(super) struct Guards {
    pub(super) store: Box<dyn Store>,
    pub(super) traits: Traits,
    pub(super) deadline: Option<Duration>,
    pub(super) breakers: Option<Breakers>,
    pub(super) deny_cache: Option<DenyCache>,
    pub(super) fallback: Option<Fallback>,
    pub(super) replay: BackgroundTask,
    pub(super) instances: Arc<Instances>,
    pub(super) clocks: Clocks,
    pub(super) store_times: MovingAverage,
    pub(super) scheduling_delay: SchedulingDelay,
}

/// The origin of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Origin {
    Caller,
    /// A task that handles failures itself, so the fallback does not decide the request.
    Task,
}

impl Guarded {
    pub(super) fn new(guards: Guards) -> Self {
        Self(Arc::new(guards))
    }

    /// Begins a check, and waits no longer than `limit` for the store.
    pub(super) fn acquire<'p>(
        &self,
        check: Box<Checked<'p>>,
        limit: Option<Duration>,
    ) -> CheckProgress<'p> {
        match self.send(Request::Acquire(&check.charges), Origin::Caller, limit) {
            Progress::Decided(reply) => Progress::Decided(reply.map(|reply| check.replied(reply))),
            Progress::Waits(call) => Progress::Waits(WaitingCheck::Store(call.keeping(check))),
        }
    }

    /// Executes a request, and waits no longer than `limit` for the store. A request that waits has a copy of the
    /// charges.
    pub(super) fn call(
        &self,
        request: Request<'_>,
        origin: Origin,
        limit: Option<Duration>,
    ) -> Answer {
        // 1.
        let local = match (request, &self.fallback) {
            (Request::Reset(_) | Request::Block(..) | Request::Unblock(_), Some(fallback)) => {
                fallback.change(request).charges
            }
            _ => SmallVec::new(),
        };
        let answer = match self.send(request, origin, limit) {
            Progress::Decided(reply) => Answer::ready(reply),
            Progress::Waits(call) => {
                let call = match request_of(request) {
                    Some(_) => call.keeping(Checked::new(Charges::copy(request.slice()))),
                    None => call,
                };
                Answer::pending(async move { Ok(call.await?.reply) })
            }
        };
        if local.iter().all(|reply| reply.units == 0) {
            return answer;
        }
        // The store may not know the units of the fallback yet.
        then(answer, move |mut reply| {
            let charges = reply.iter_mut().flat_map(|reply| &mut reply.charges);
            charges
                .zip(local)
                .for_each(|(shared, local)| shared.units = shared.units.max(local.units));
            reply
        })
    }

    /// Passes a request through all steps, and waits no longer than `limit` for the store. The steps up to
    /// the call are taken here, the others when the call has ended:
    ///
    /// 1. The [fallback](Fallback) refunds the units that it has admitted. In [`call`](Self::call), it also resets
    ///    the keys that it counts, and blocks keys in this process.
    /// 2. If the [breaker](Breakers) of a node that the request depends on is open, the fallback
    ///    decides.
    /// 3. If the [deny cache](DenyCache) implies that the store denies the check, the cache answers.
    /// 4. Each breaker of step 2 grants a [permit](NodePermit). If one rejects the request, the fallback
    ///    decides.
    /// 5. The store is called. It must answer by the [deadline](deadline_in).
    /// 6. The breakers and the deny cache record the outcome.
    /// 7. If the store has failed, the fallback decides. If it has answered, the backlog of the
    ///    fallback is charged to it.
    ///
    /// The caller gives a call that waits its [check](StoreCall::keeping).
    fn send(
        &self,
        request: Request<'_>,
        origin: Origin,
        limit: Option<Duration>,
    ) -> Progress<StoreReply, StoreCall<'static>> {
        // 1.
        if let (Request::Refund(receipt), Some(fallback)) = (request, &self.fallback)
            && receipt.source == Source::Fallback
        {
            return Progress::Decided(Ok(fallback.refund(receipt)));
        }
        // 2.
        if self.breakers.as_ref().is_some_and(|it| it.rejects(&*self.store, request)) {
            return Progress::Decided(self.fall_back(request, Cause::Rejected, origin));
        }
        // 3.
        let tracked = match &self.deny_cache {
            None => TrackedRequest::default(),
            Some(deny_cache) => match deny_cache.begin(request) {
                Ok(tracked) => tracked,
                Err(denial) => return Progress::Decided(Ok(denial)),
            },
        };
        // 4.
        let start = Instant::now();
        let Some(permits) = self.permits(request, start) else {
            return Progress::Decided(self.fall_back(request, Cause::Rejected, origin));
        };
        // 5.
        let deadline = limit.and_then(|limit| deadline_in(start, limit));
        let mut call = StoreCall::new(SentCall {
            guarded: self.clone(),
            request_of: request_of(request),
            origin,
            start,
            deadline,
            tracked,
            permits,
            reply: None,
        });
        match self.call_store(request, deadline).now_or_later() {
            // 6 and 7.
            Ok(reply) => {
                let now = Instant::now();
                let mut sent = call.end();
                Progress::Decided(sent.finish(reply, now, Some(now - start), Some(request)))
            }
            Err(reply) => {
                call.sent().reply = Some(reply);
                Progress::Waits(call)
            }
        }
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
        self.instances.stop();
        if let Some(breakers) = &self.breakers {
            breakers.stop();
        }
    }

    /// Requests the permits of step 4. Without breakers, every request goes through without one.
    fn permits(&self, request: Request<'_>, start: Instant) -> Option<Permits> {
        let Some(breakers) = &self.breakers else { return Some(Permits::new()) };
        let breakers = breakers.of(&*self.store, request);
        for breaker in breakers.iter().filter(|breaker| breaker.is_open()) {
            self.start_prober(breaker);
        }
        NodePermit::try_acquire_all(breakers, start)
    }

    /// Records the outcome of a call in the breaker of each node that it depended on.
    fn record(
        &self,
        permits: Permits,
        now: Instant,
        outcome: impl Fn(&SharedBreaker) -> CallOutcome,
    ) {
        for NodePermit { breaker, permit } in permits {
            breaker.record(permit, now, outcome(&breaker));
            if breaker.is_open() {
                self.start_prober(&breaker);
            }
        }
    }
}

impl Guards {
    /// Returns whether the fallback has units to charge to the store.
    pub(super) fn has_backlog(&self) -> bool {
        self.fallback.as_ref().is_some_and(|fallback| !fallback.backlog().is_empty())
    }

    /// Returns the time that the store has taken from `start` until `now`. Returns `None` in two cases:
    ///
    /// - The process was late meanwhile. Most of the time may have passed in its own run queue.
    /// - The store [protects itself](Traits::protects_itself), so it measures itself.
    pub(super) fn store_time(&self, start: Instant, now: Instant) -> Option<Duration> {
        (!self.traits.protects_itself && !self.scheduling_delay.was_late_since(start))
            .then(|| now - start)
    }

    /// Calls the store. The answer is ready by the deadline, if there is one.
    ///
    /// A store that [keeps deadlines](Traits::keeps_deadlines) fails by itself, and its error says whether the
    /// request was sent. It has the only timer of the call, and measures with it. For other stores a timer here
    /// ends the call, and the effect of the request is [unknown](Effect::Unknown).
    pub(super) fn call_store(&self, request: Request<'_>, deadline: Option<TimeLimit>) -> Answer {
        let answer = self.store.call(request, deadline.map(|it| it.time().into_std()));
        let Some(deadline) = deadline.filter(|_| !self.traits.keeps_deadlines) else {
            return answer;
        };
        match answer.now() {
            Ok(reply) => Answer::ready(reply),
            Err(mut answer) => {
                let delay = self.scheduling_delay.clone();
                Answer::pending(async move {
                    let reply = deadline.wait_measured(Pin::new(&mut answer), &delay).await;
                    reply.unwrap_or_else(|_| Err(missed(deadline).with_effect(Effect::Unknown)))
                })
            }
        }
    }
}

impl Deref for Guarded {
    type Target = Guards;

    fn deref(&self) -> &Guards {
        &self.0
    }
}

/// The result of a step: a reply, or what waits for one.
pub(crate) enum Progress<R, C> {
    Decided(Result<R, Error>),
    Waits(C),
}

/// The result of the beginning of a check.
pub(crate) type CheckProgress<'p> = Progress<Box<Checked<'p>>, WaitingCheck<'p>>;

/// A check to which the store has replied.
pub(crate) type Answered<'p> = Result<Box<Checked<'p>>, Error>;

/// A check that waits for the store.
pub(crate) enum WaitingCheck<'p> {
    Store(StoreCall<'p>),
    /// A check with more steps than a call of the store.
    Boxed(Pin<Box<dyn Future<Output = Answered<'static>> + Send>>),
}

impl WaitingCheck<'_> {
    /// Creates a check of several steps.
    pub(crate) fn boxed(
        call: impl Future<Output = Answered<'static>> + Send + 'static,
    ) -> WaitingCheck<'static> {
        WaitingCheck::Boxed(Box::pin(call))
    }

    /// Returns the check with [`Policy`](crate::Policy) handles of its own.
    pub(crate) fn into_owned(self) -> WaitingCheck<'static> {
        match self {
            Self::Store(call) => WaitingCheck::Store(call.into_owned()),
            Self::Boxed(call) => WaitingCheck::Boxed(call),
        }
    }

    /// Returns the charges of a check that only the store has to decide.
    pub(crate) fn charges(&self) -> &[Charge<'_>] {
        match self {
            Self::Store(call) => call.charges(),
            Self::Boxed(_) => &[],
        }
    }
}

impl<'p> Future for WaitingCheck<'p> {
    type Output = Answered<'p>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Answered<'p>> {
        match &mut *self {
            Self::Store(call) => Pin::new(call).poll(cx),
            Self::Boxed(call) => call.as_mut().poll(cx),
        }
    }
}

/// A call of the store. If it is dropped before its outcome is recorded, the store has panicked or the caller has
/// stopped waiting.
///
/// The sent call is large, and in a box from the start, so that only a pointer is moved.
pub(crate) struct StoreCall<'p> {
    /// `None` once the outcome is recorded.
    sent: Option<Box<SentCall>>,
    /// `None` for a request whose charges are not needed any more.
    check: Option<Box<Checked<'p>>>,
}

impl<'p> StoreCall<'p> {
    fn new(sent: SentCall) -> Self {
        Self { sent: Some(Box::new(sent)), check: None }
    }

    /// Gives the request its check, whose charges the deny cache and the fallback need when the call has ended.
    fn keeping<'c>(mut self, check: Box<Checked<'c>>) -> StoreCall<'c> {
        StoreCall { sent: self.sent.take(), check: Some(check) }
    }

    fn charges(&self) -> &[Charge<'p>] {
        self.check.as_ref().map_or(&[], |check| &check.charges)
    }

    fn into_owned(mut self) -> StoreCall<'static> {
        StoreCall { sent: self.sent.take(), check: self.check.take().map(Checked::into_owned) }
    }

    fn sent(&mut self) -> &mut SentCall {
        self.sent.as_mut().expect("polled after it was ready")
    }

    /// Returns what was sent, when the call has ended.
    ///
    /// # Panics
    ///
    /// Panics if it has been returned before.
    fn end(&mut self) -> Box<SentCall> {
        self.sent.take().expect("polled after it was ready")
    }
}

impl<'p> Future for StoreCall<'p> {
    type Output = Answered<'p>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Answered<'p>> {
        let reply = self.sent().reply.as_mut().expect("polled after it was ready");
        let reply = ready!(reply.as_mut().poll(cx));
        let mut sent = self.end();
        if reply.is_err() && sent.deadline.is_some_and(TimeLimit::has_passed) {
            telemetry::deadline_missed();
        }
        let now = Instant::now();
        let time = sent.guarded.store_time(sent.start, now);
        // A call that was refused or not sent often takes no time. One that missed its deadline has
        // taken at least that long.
        let was_refused = reply.as_ref().is_err_and(|error| error.effect() == Effect::None);
        if let Some(time) = time
            && !was_refused
        {
            sent.guarded.store_times.record(time);
            telemetry::store_answered(time);
        }
        // 6 and 7.
        let check = self.check.take().unwrap_or_else(Checked::empty);
        let request = sent.request_of.map(|request_of| request_of(&check.charges));
        let reply = sent.finish(reply, now, time, request);
        Poll::Ready(reply.map(|reply| check.replied(reply)))
    }
}

impl Drop for StoreCall<'_> {
    fn drop(&mut self) {
        let Some(mut sent) = self.sent.take() else { return };
        let now = Instant::now();
        let time = sent.guarded.store_time(sent.start, now);
        let permits = mem::take(&mut sent.permits);
        sent.guarded.record(permits, now, |breaker| breaker.judge_abandoned(time));
        let tracked = mem::take(&mut sent.tracked);
        if let Some(cache) = &sent.guarded.deny_cache {
            cache.abandon(tracked, self.charges());
        }
    }
}

/// Makes a request of its charges.
type RequestOf = for<'c> fn(&'c [Charge<'c>]) -> Request<'c>;

/// Returns how the request is made of its charges, or `None` if the fallback does not execute it in place of the store.
fn request_of(request: Request<'_>) -> Option<RequestOf> {
    match request {
        Request::Acquire(_) => Some(|charges| Request::Acquire(charges)),
        Request::Peek(_) => Some(|charges| Request::Peek(charges)),
        Request::Force(_) => Some(|charges| Request::Force(charges)),
        Request::Refund(_) | Request::Reset(_) | Request::Block(..) | Request::Unblock(_) => None,
    }
}

/// A call as it was sent to the store.
pub(crate) struct SentCall {
    guarded: Guarded,
    /// `None` for a request that the fallback does not execute.
    request_of: Option<RequestOf>,
    origin: Origin,
    start: Instant,
    deadline: Option<TimeLimit>,
    /// The handle with which the deny cache records the outcome.
    tracked: TrackedRequest,
    /// The handles with which the breakers record the outcome.
    permits: Permits,
    /// `None` if the call does not wait.
    reply: Option<ReplyFuture>,
}

impl SentCall {
    /// Takes steps 6 and 7. `time` is the time that the store took until `now`, if it is known.
    fn finish(
        &mut self,
        reply: Result<StoreReply, Error>,
        now: Instant,
        time: Option<Duration>,
        request: Option<Request<'_>>,
    ) -> Result<StoreReply, Error> {
        let guarded = &self.guarded;
        // 6.
        let failed_node = reply.as_ref().err().and_then(Error::node);
        guarded.record(mem::take(&mut self.permits), now, |breaker| match failed_node {
            Some(node) if breaker.node() != NodeId(node) => CallOutcome::Unknown,
            _ => breaker.judge(&reply, time),
        });
        if let Some(cache) = &guarded.deny_cache {
            cache.record(mem::take(&mut self.tracked), request.map_or(&[], Request::slice), &reply);
        }
        // 7.
        let error = match reply {
            Ok(_) => {
                guarded.start_announcing();
                if guarded.has_backlog() {
                    guarded.start_replay();
                }
                return reply;
            }
            Err(error) => error,
        };
        if error.is_unavailable() && !guarded.traits.protects_itself {
            telemetry::store_failed(&error);
        }
        match request {
            Some(request) => guarded.fall_back(request, Cause::Failed(error), self.origin),
            None => Err(error),
        }
    }
}

/// Returns the time by which the store must answer a call that starts at `start` and waits at most `limit`. Returns
/// `None` outside of a tokio runtime with timers.
pub(super) fn deadline_in(start: Instant, limit: Duration) -> Option<TimeLimit> {
    runtime_with_timer()?;
    Some(TimeLimit::from(start, limit.max(2 * TIMER_RESOLUTION) - TIMER_RESOLUTION))
}

/// Changes the reply of an answer.
pub(super) fn then(
    answer: Answer,
    change: impl FnOnce(Result<StoreReply, Error>) -> Result<StoreReply, Error> + Send + 'static,
) -> Answer {
    match answer.now() {
        Ok(reply) => Answer::ready(change(reply)),
        Err(answer) => Answer::pending(async move { change(answer.await) }),
    }
}

fn missed(deadline: TimeLimit) -> Error {
    let limit = deadline.period() + TIMER_RESOLUTION;
    Error::new(ErrorKind::Unavailable, format!("the store did not answer within {limit:?}"))
}
