//! Batches: checks that arrive while a call is in flight share the next one.
//!
//! If no call is in flight in its slot, a check is sent at once, alone. Checks that arrive while a call is in
//! flight wait in the [queue](SlotQueue) of the slot. A batch of them is sent when that call has ended, when
//! there are enough of them for a second call beside it, or when it takes too long. One call of the script then
//! decides them one by one, in the order of their arrival. So the busier the server is, the less each check
//! costs it.

use std::{
    collections::{HashMap, VecDeque, hash_map::Entry},
    future::poll_fn,
    io, mem,
    pin::{Pin, pin},
    slice,
    sync::{Arc, OnceLock},
    task::{Context, Poll},
    time::Duration,
};

use redis::RedisError;
use tokio::{
    runtime::Handle,
    sync::oneshot,
    task::unconstrained,
    time::{Instant, Sleep, sleep},
};

use super::{
    backend::Backend,
    error::Failure,
    script::{ScriptCall, SentFlag},
    wire::{CallReply, Operation, WireCheck},
};
use crate::{
    clock::Clock,
    decision::StoreReply,
    error::{Effect, Error},
    runtime::{Elapsed, SchedulingDelay, TimeLimit},
    sync::Mutex,
};

/// The maximum number of charges in a batch, so that one call does not keep the server busy for long.
const MAX_BATCH_CHARGES: usize = 64;
/// The number of queued charges for which a second call is sent beside one in flight, so that the server does
/// not wait while the reply to the first one is handled. More calls would make batches smaller
/// (`benches/redis/hand_written.rs`).
const SECOND_CALL_CHARGES: usize = 24;
/// The time after which the queue does not wait for the calls in flight any longer. One of them may hang, or may
/// be in a runtime that stands still, as a current-thread runtime does outside of `block_on`.
const MAX_BATCH_WAIT: Duration = Duration::from_millis(5);
/// The time after which a request without a deadline looks at its queue again. The timer of a deadline does so
/// as well when it [measures](TimeLimit::wait_measured).
const LOOK_AGAIN_AFTER: Duration = Duration::from_millis(10);

/// A runner of the script that decides several checks of one slot in one call. It is cheap to
/// clone.
#[derive(Clone)]
pub(super) struct Batcher(Arc<BatcherShared>);

struct BatcherShared {
    backend: Backend,
    scheduling_delay: SchedulingDelay,
    is_batching: bool,
    queues: Mutex<Queues>,
    /// The clock that a test has set. Otherwise the time is the server's.
    test_clock: OnceLock<Arc<dyn Clock>>,
}

/// The queues of the slots with calls in flight. A single server is one slot.
#[derive(Default)]
struct Queues {
    by_slot: HashMap<u16, SlotQueue>,
    /// The id of the next check. No id is used twice, because a check may outlive the queue of its slot.
    next_id: u64,
}

/// The options that all calls of one request share.
#[derive(Debug, Clone, Copy)]
pub(super) struct CallOptions {
    pub(super) operation: Operation,
    pub(super) deadline: Option<TimeLimit>,
}

/// A check that was queued and has failed.
pub(super) struct FailedCheck {
    pub(super) check: WireCheck,
    pub(super) failure: Failure,
}

impl Batcher {
    pub(super) fn new(backend: Backend, is_batching: bool) -> Self {
        Self(Arc::new(BatcherShared {
            backend,
            scheduling_delay: SchedulingDelay::default(),
            is_batching,
            queues: Mutex::default(),
            test_clock: OnceLock::new(),
        }))
    }

    /// Sets the clock of all calls from now on.
    #[cfg(feature = "test-util")]
    pub(super) fn set_test_clock(&self, clock: Arc<dyn Clock>) {
        // A second clock is ignored.
        let _ = self.0.test_clock.set(clock);
    }

    pub(super) fn backend(&self) -> &Backend {
        &self.0.backend
    }

    /// Returns the scheduling delay that the timers of checks measure.
    pub(super) fn scheduling_delay(&self) -> &SchedulingDelay {
        &self.0.scheduling_delay
    }

    /// Runs the script for the charges of one slot, or fails at the deadline. The timer of the deadline is the
    /// only one of the request. A check to acquire waits for a batch if a call is in flight.
    ///
    /// # Errors
    ///
    /// Returns an error if the call fails, or its reply is not valid.
    pub(super) async fn run_by_deadline(
        &self,
        slot: u16,
        check: &mut WireCheck,
        options: CallOptions,
    ) -> Result<StoreReply, Failure> {
        let Some(mut queued) = self.try_queue(slot, check, options) else {
            return self.call_alone(slot, check, options).await;
        };
        queued.finish().await.map_err(|failed| {
            let FailedCheck { check: returned, failure } = *failed;
            *check = returned;
            failure
        })
    }

    /// Moves a check to acquire into the queue if a call is in flight in its slot. Otherwise the check has to be
    /// [called](Self::run_by_deadline) alone.
    pub(super) fn try_queue(
        &self,
        slot: u16,
        check: &mut WireCheck,
        options: CallOptions,
    ) -> Option<QueuedCheck> {
        if !self.0.is_batching || options.operation != Operation::Acquire {
            return None;
        }
        let mut queues = self.0.queues.lock();
        let Queues { by_slot, next_id } = &mut *queues;
        let queue = by_slot.get_mut(&slot)?;
        let (sender, outcome) = oneshot::channel();
        let id = *next_id;
        *next_id += 1;
        queue.push(mem::take(check), Caller { id, outcome: sender });
        let is_due = queue.is_due(options.deadline.map_or_else(Instant::now, TimeLimit::start));
        drop(queues);
        if is_due {
            self.begin_batch(slot);
        }
        let batcher = self.clone();
        Some(QueuedCheck {
            batcher,
            slot,
            options,
            id,
            outcome,
            has_looked: true,
            has_ended: false,
        })
    }

    /// Runs the script for one request, or fails at the deadline.
    async fn call_alone(
        &self,
        slot: u16,
        check: &WireCheck,
        CallOptions { operation, deadline }: CallOptions,
    ) -> Result<StoreReply, Failure> {
        let in_flight = self.begin_alone(slot, operation);
        let sent_flag = SentFlag::new(deadline);
        let in_time = {
            let reply = pin!(self.call(slot, operation, slice::from_ref(check), &sent_flag));
            self.in_time(reply, deadline).await
        };
        drop(in_flight);
        // The call has been dropped, so a request that has not been sent is never sent.
        let result = in_time.unwrap_or_else(|_| Err(Failure::TimedOut(sent_flag.effect())));
        result?.pop().flatten().ok_or(Failure::NotOurs)
    }

    /// Waits for a call or a queued check until the deadline. Without a deadline, the future is polled again after
    /// [`LOOK_AGAIN_AFTER`], so that a queued check looks whether a batch is due.
    async fn in_time<F: Future>(
        &self,
        mut future: Pin<&mut F>,
        deadline: Option<TimeLimit>,
    ) -> Result<F::Output, Elapsed> {
        if let Some(deadline) = deadline {
            return deadline.wait_measured(future, self.scheduling_delay()).await;
        }
        match before(pin!(sleep(LOOK_AGAIN_AFTER)), future.as_mut()).await {
            Some(output) => Ok(output),
            None => Ok(future.await),
        }
    }

    /// Returns the error of a call for the charges of one slot.
    pub(super) fn error(&self, slot: u16, check: &WireCheck, failure: Failure) -> Error {
        let policies = failure.policies_of_foreign_key(check);
        let error = self.backend().error(slot, failure);
        match policies {
            Some(policies) => error.with_note(&format!("the policy of the key is {policies}")),
            None => error,
        }
    }

    /// Runs the script for these checks in one call.
    pub(super) async fn call(
        &self,
        slot: u16,
        operation: Operation,
        checks: &[WireCheck],
        sent_flag: &SentFlag,
    ) -> Result<CallReply, Failure> {
        let test_time = self.0.test_clock.get().map(|clock| clock.now().as_micros());
        self.backend().run(slot, &ScriptCall { operation, checks, test_time, sent_flag }).await
    }

    /// Counts a check that is sent alone as the call in flight in its slot, if there is no other.
    fn begin_alone(&self, slot: u16, operation: Operation) -> Option<CallInFlight> {
        if !self.0.is_batching || operation != Operation::Acquire {
            return None;
        }
        let mut queues = self.0.queues.lock();
        let Entry::Vacant(entry) = queues.by_slot.entry(slot) else { return None };
        entry.insert(SlotQueue::new(Instant::now()));
        Some(CallInFlight { batcher: self.clone(), slot })
    }

    /// Begins a batch if it is time for one. It has a task of its own, because a check that is dropped must not
    /// end the others. The task ends with the call, or when all of its checks were dropped. If its runtime ends
    /// before it has taken its checks, they are sent with the next batch.
    fn begin_batch(&self, slot: u16) {
        let Ok(runtime) = Handle::try_current() else { return };
        let mut queues = self.0.queues.lock();
        if !queues.by_slot.get_mut(&slot).is_some_and(SlotQueue::begin_batch) {
            return;
        }
        // A task that cannot run is dropped at once, and its drop locks the queues.
        drop(queues);
        runtime.spawn(CallInFlight { batcher: self.clone(), slot }.run_batch());
    }

    /// Changes the queue of a slot, which is dropped when it is empty and no call is in flight.
    fn change<T: Default>(&self, slot: u16, change: impl FnOnce(&mut SlotQueue) -> T) -> T {
        let mut queues = self.0.queues.lock();
        let Entry::Occupied(mut entry) = queues.by_slot.entry(slot) else { return T::default() };
        let result = change(entry.get_mut());
        if entry.get().calls_in_flight == 0 && entry.get().checks.is_empty() {
            entry.remove();
        }
        result
    }
}

/// A check that waits in the queue, or for the reply to its batch. Each poll looks whether a batch is due, except the
/// first poll, because [`Batcher::try_queue`] has just looked.
///
/// If it is dropped while it is in the queue, it is removed and never sent.
pub(super) struct QueuedCheck {
    batcher: Batcher,
    slot: u16,
    options: CallOptions,
    id: u64,
    outcome: oneshot::Receiver<BatchOutcome>,
    has_looked: bool,
    has_ended: bool,
}

impl QueuedCheck {
    /// Waits for the outcome. A check that its batch could not decide is called alone.
    ///
    /// # Errors
    ///
    /// Returns an error if the call fails, or its reply is not valid.
    pub(super) async fn finish(&mut self) -> Result<StoreReply, Box<FailedCheck>> {
        let batcher = self.batcher.clone();
        let options = self.options;
        let Ok(outcome) = batcher.in_time(Pin::new(self), options.deadline).await else {
            let failure = Failure::TimedOut(self.leave());
            return Err(Box::new(FailedCheck { check: WireCheck::default(), failure }));
        };
        let mut undecided = match outcome {
            Ok(Ok(reply)) => return Ok(reply),
            Ok(Err(undecided)) => undecided,
            Err(failure) => {
                return Err(Box::new(FailedCheck { check: WireCheck::default(), failure }));
            }
        };
        if let Some(failure) = undecided.failure {
            return Err(Box::new(FailedCheck { check: undecided.check, failure }));
        }
        // In a box, because this is rare, and many futures wait in the queue.
        let result = Box::pin(batcher.call_alone(self.slot, &undecided.check, options)).await;
        result.map_err(|failure| {
            Box::new(FailedCheck { check: mem::take(&mut undecided.check), failure })
        })
    }

    /// Returns the error of a check that has failed.
    pub(super) fn error(&self, FailedCheck { check, failure }: FailedCheck) -> Error {
        self.batcher.error(self.slot, &check, failure)
    }

    /// Leaves the queue, and returns the effect that the check may have.
    fn leave(&mut self) -> Effect {
        self.has_ended = true;
        let was_queued = self.batcher.change(self.slot, |queue| queue.remove(self.id));
        if was_queued { Effect::None } else { Effect::Unknown }
    }
}

impl Future for QueuedCheck {
    type Output = Result<BatchOutcome, Failure>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let Poll::Ready(outcome) = Pin::new(&mut self.outcome).poll(cx) else {
            if !mem::take(&mut self.has_looked) {
                self.batcher.begin_batch(self.slot);
            }
            return Poll::Pending;
        };
        self.has_ended = true;
        Poll::Ready(outcome.map_err(|_| Failure::Lost(task_ended())))
    }
}

impl Drop for QueuedCheck {
    fn drop(&mut self) {
        if !self.has_ended {
            self.leave();
        }
    }
}

/// A guard of a call in flight. When it is dropped, the call has ended, and the checks that wait for it are sent.
struct CallInFlight {
    batcher: Batcher,
    slot: u16,
}

impl Drop for CallInFlight {
    fn drop(&mut self) {
        self.batcher.change(self.slot, |queue| queue.calls_in_flight -= 1);
        self.batcher.begin_batch(self.slot);
    }
}

impl CallInFlight {
    /// Sends the first checks in the queue, and sends each check its outcome.
    ///
    /// The checks stay in the queue until there is a connection. A check that times out in the
    /// queue is removed, and so is certainly not charged.
    async fn run_batch(self) {
        let batcher = self.batcher.clone();
        let ready = batcher.backend().ready(self.slot).await;
        let (checks, mut callers) = batcher.change(self.slot, SlotQueue::take_batch);
        batcher.begin_batch(self.slot);
        if checks.is_empty() {
            return;
        }
        let sent_flag = SentFlag::default();
        let result = match ready {
            Ok(()) => {
                let call = batcher.call(self.slot, Operation::Acquire, &checks, &sent_flag);
                while_awaited(pin!(call), &mut callers).await
            }
            Err(failure) => Some(Err(failure)),
        };
        // This drop ends the call in flight, so the next batch begins before the outcomes are sent.
        drop(self);
        let Some(result) = result else { return };
        let mut replies = result.map(CallReply::into_iter);
        for (check, caller) in checks.into_iter().zip(callers) {
            let reply = match &mut replies {
                Ok(replies) => replies.next().flatten().ok_or(None),
                Err(failure) if failure.may_spare_single_checks() => Err(None),
                Err(failure) => Err(Some(failure.clone())),
            };
            let outcome = reply.map_err(|failure| Box::new(UndecidedCheck { check, failure }));
            // A check that was dropped does not need its outcome.
            let _ = caller.outcome.send(outcome);
        }
    }
}

/// Waits for the result of a call. Returns `None` when all of its checks were dropped.
async fn while_awaited<F: Future>(
    mut call: Pin<&mut F>,
    callers: &mut Vec<Caller>,
) -> Option<F::Output> {
    poll_fn(|cx| {
        if let Poll::Ready(result) = call.as_mut().poll(cx) {
            return Poll::Ready(Some(result));
        }
        // The call continues while any check waits, so only the last one is polled. Its drop wakes
        // this task.
        while let Some(last) = callers.last_mut() {
            if last.outcome.poll_closed(cx).is_pending() {
                return Poll::Pending;
            }
            callers.pop();
        }
        Poll::Ready(None)
    })
    .await
}

fn task_ended() -> RedisError {
    io::Error::new(io::ErrorKind::Interrupted, "the task that sent the batch has ended").into()
}

/// The calls in flight and the queued checks of one slot. Checks are queued only while a call is in flight.
struct SlotQueue {
    calls_in_flight: usize,
    /// The batches among them that have not taken their checks from the queue yet.
    unsent_batches: usize,
    /// The start of the last call.
    last_call: Instant,
    /// In the order of their ids.
    checks: VecDeque<WireCheck>,
    /// One for each check.
    callers: VecDeque<Caller>,
    charges: usize,
}

/// The caller of a check in the queue.
struct Caller {
    id: u64,
    outcome: oneshot::Sender<BatchOutcome>,
}

/// The outcome of a check that was part of a batch. The caller gets its check back if it was not decided.
pub(super) type BatchOutcome = Result<StoreReply, Box<UndecidedCheck>>;

pub(super) struct UndecidedCheck {
    check: WireCheck,
    /// The failure of the batch, or `None` if the batch could not decide the check together with the others. It has
    /// then spent nothing for it.
    failure: Option<Failure>,
}

impl SlotQueue {
    /// Creates the queue of a slot with one call in flight.
    fn new(now: Instant) -> Self {
        Self {
            calls_in_flight: 1,
            unsent_batches: 0,
            last_call: now,
            checks: VecDeque::new(),
            callers: VecDeque::new(),
            charges: 0,
        }
    }

    /// Appends a check, whose id is larger than those before it.
    fn push(&mut self, check: WireCheck, caller: Caller) {
        self.charges += check.charges().len();
        self.checks.push_back(check);
        self.callers.push_back(caller);
    }

    /// Returns whether a call with the first checks is due at `now`.
    fn is_due(&self, now: Instant) -> bool {
        let is_late = self.is_late(now);
        // The runtime of an unsent batch may stand still.
        let unsent = if is_late { 0 } else { self.unsent_batches };
        let waiting = self.charges.saturating_sub(MAX_BATCH_CHARGES * unsent);
        match self.calls_in_flight {
            calls if calls == 0 || is_late => waiting > 0,
            1 => waiting >= SECOND_CALL_CHARGES,
            _ => waiting >= MAX_BATCH_CHARGES,
        }
    }

    fn is_late(&self, now: Instant) -> bool {
        now.saturating_duration_since(self.last_call) >= MAX_BATCH_WAIT
    }

    /// Begins a call for the first checks, if it is time. The batch then [takes](Self::take_batch) them.
    fn begin_batch(&mut self) -> bool {
        let now = Instant::now();
        let is_due = self.is_due(now);
        if self.is_late(now) {
            self.unsent_batches = 0;
        }
        if is_due {
            self.calls_in_flight += 1;
            self.unsent_batches += 1;
            self.last_call = now;
        }
        is_due
    }

    /// Takes the first checks that fit into a call, and their callers.
    fn take_batch(&mut self) -> (Vec<WireCheck>, Vec<Caller>) {
        self.unsent_batches = self.unsent_batches.saturating_sub(1);
        let mut charges = 0;
        let mut count = 0;
        for check in &self.checks {
            let with_this = charges + check.charges().len();
            if count > 0 && with_this > MAX_BATCH_CHARGES {
                break;
            }
            charges = with_this;
            count += 1;
        }
        self.charges -= charges;
        (self.checks.drain(..count).collect(), self.callers.drain(..count).collect())
    }

    /// Removes a check. Returns `false` if it is not in the queue.
    fn remove(&mut self, id: u64) -> bool {
        let Ok(index) = self.callers.binary_search_by_key(&id, |caller| caller.id) else {
            return false;
        };
        self.callers.remove(index);
        if let Some(removed) = self.checks.remove(index) {
            self.charges -= removed.charges().len();
        }
        true
    }
}

/// Waits for `future`. Returns `None` if the timer fires before it is ready.
async fn before<F: Future>(
    mut timer: Pin<&mut Sleep>,
    mut future: Pin<&mut F>,
) -> Option<F::Output> {
    poll_fn(|cx| match future.as_mut().poll(cx) {
        Poll::Ready(output) => Poll::Ready(Some(output)),
        // The timer fires also in a task whose future uses up its budget.
        Poll::Pending => pin!(unconstrained(timer.as_mut())).poll(cx).map(|()| None),
    })
    .await
}

#[cfg(test)]
mod tests {
    use tokio::time::advance;

    use super::*;
    use crate::{
        Policy,
        redis::{
            RedisConfig,
            wire::{KeyNames, WireCharge},
        },
    };

    /// Appends checks of one charge. Their ids are all 0, because none is removed.
    fn push(queue: &mut SlotQueue, checks: usize) {
        let policy = Policy::new("hot", "10/s").expect("valid");
        let charge =
            WireCharge::new(&KeyNames::new(&RedisConfig::default()), 0, &policy.charge("a", 1));
        let check = WireCheck::new([charge].into_iter().collect());
        for _ in 0..checks {
            queue.push(check.clone(), Caller { id: 0, outcome: oneshot::channel().0 });
        }
    }

    fn end_call(queue: &mut SlotQueue) {
        queue.calls_in_flight -= 1;
    }

    #[tokio::test(start_paused = true)]
    async fn a_batch_waits_for_the_call_in_flight() {
        let mut queue = SlotQueue::new(Instant::now());
        push(&mut queue, SECOND_CALL_CHARGES - 1);
        assert!(!queue.begin_batch());
        end_call(&mut queue);
        assert!(queue.begin_batch());
        assert_eq!(queue.take_batch().0.len(), SECOND_CALL_CHARGES - 1);
        end_call(&mut queue);
        assert!(!queue.begin_batch());
    }

    #[tokio::test(start_paused = true)]
    async fn one_call_is_sent_beside_the_one_in_flight_and_no_third_one() {
        let mut queue = SlotQueue::new(Instant::now());
        push(&mut queue, SECOND_CALL_CHARGES);
        assert!(queue.begin_batch());
        assert_eq!(queue.take_batch().0.len(), SECOND_CALL_CHARGES);

        push(&mut queue, MAX_BATCH_CHARGES - 1);
        assert!(!queue.begin_batch());
        end_call(&mut queue);
        assert!(queue.begin_batch(), "one call has ended, and another one is in flight");
        assert_eq!(queue.calls_in_flight, 2);
    }

    #[tokio::test(start_paused = true)]
    async fn checks_that_fill_a_call_do_not_wait() {
        let mut queue = SlotQueue::new(Instant::now());
        push(&mut queue, SECOND_CALL_CHARGES);
        assert!(queue.begin_batch());
        queue.take_batch();
        push(&mut queue, MAX_BATCH_CHARGES);
        assert!(queue.begin_batch());
        assert_eq!(queue.calls_in_flight, 3);
    }

    /// The charges of a batch that is not sent yet are no reason for another one.
    #[tokio::test(start_paused = true)]
    async fn the_checks_of_an_unsent_batch_start_no_second_call() {
        let mut queue = SlotQueue::new(Instant::now());
        push(&mut queue, SECOND_CALL_CHARGES - 1);
        end_call(&mut queue);
        assert!(queue.begin_batch());
        push(&mut queue, SECOND_CALL_CHARGES);
        assert!(!queue.begin_batch());
        assert_eq!(queue.calls_in_flight, 1);
    }

    /// A call may hang, and the runtime of an unsent batch may stand still.
    #[tokio::test(start_paused = true)]
    async fn a_queue_waits_for_a_few_milliseconds() {
        let mut queue = SlotQueue::new(Instant::now());
        push(&mut queue, 1);
        advance(MAX_BATCH_WAIT - Duration::from_millis(1)).await;
        assert!(!queue.begin_batch());
        advance(Duration::from_millis(1)).await;
        assert!(queue.begin_batch());
        assert!(!queue.begin_batch());
        advance(MAX_BATCH_WAIT).await;
        assert!(queue.begin_batch(), "the first batch has not taken the check");
        queue.take_batch();
        advance(MAX_BATCH_WAIT).await;
        assert!(!queue.begin_batch(), "no check waits");
    }
}
