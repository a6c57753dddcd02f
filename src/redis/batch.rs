//! Batches: checks that arrive while a call is in flight share the next one.
//!
//! If no call is in flight, a check is sent at once, alone. Checks that arrive while a call is in
//! flight are queued, and the first of them starts a [`Batch`]. It waits until that call has ended, until
//! there are enough checks for a second call beside it, or until the checks fill a call. One call of the
//! script then decides them one by one, in the order of their arrival. So the busier the server is, the
//! less each check costs it.

use std::{
    collections::{HashMap, hash_map::Entry},
    fmt, io,
    pin::pin,
    slice,
    sync::{Arc, MutexGuard},
};

use redis::RedisError;
use tokio::{
    runtime::Handle,
    sync::oneshot::{self, error::TryRecvError},
    time::{Instant, timeout_at},
};

use super::{
    backend::Backend,
    error::{Failure, SentFlag},
    script::ScriptCall,
    slot_queue::{
        BatchOutcome, BatchPlace, PendingCheck, SlotQueue, WhileAwaited, send_all, send_outcomes,
    },
    wire::{CheckReply, Operation, WireCheck},
};
use crate::{runtime::SchedulingDelay, sync::Mutex};

/// A runner of the script that decides several checks of one slot in one call. It is cheap to
/// clone.
#[derive(Debug, Clone)]
pub(super) struct Batcher(Arc<BatcherShared>);

struct BatcherShared {
    backend: Backend,
    scheduling_delay: SchedulingDelay,
    is_batching: bool,
    queues: Mutex<Queues>,
}

/// The queues of the slots with calls in flight. A single server is one slot.
#[derive(Default)]
struct Queues {
    by_slot: HashMap<u16, SlotQueue>,
    /// The id of the next check. No id is used twice, because a check may outlive the queue of its slot.
    next_id: u64,
}

/// The first step of a check.
enum Start<'a> {
    /// It is sent at once.
    Alone(CallInFlight),
    Queued(QueuedCheck<'a>),
}

impl Batcher {
    pub(super) fn new(backend: Backend, is_batching: bool) -> Self {
        Self(Arc::new(BatcherShared {
            backend,
            scheduling_delay: SchedulingDelay::default(),
            is_batching,
            queues: Mutex::default(),
        }))
    }

    pub(super) fn backend(&self) -> &Backend {
        &self.0.backend
    }

    /// Returns the scheduling delay that the timers of checks measure.
    pub(super) fn scheduling_delay(&self) -> &SchedulingDelay {
        &self.0.scheduling_delay
    }

    /// Runs the script for one check. A check to acquire may share its call with others.
    ///
    /// # Errors
    ///
    /// Returns an error if the call of the check fails, or its reply is not valid.
    pub(super) async fn run(
        &self,
        slot: u16,
        operation: Operation,
        check: &WireCheck,
        test_time: Option<u64>,
        sent_flag: &SentFlag,
    ) -> Result<CheckReply, Failure> {
        let mut in_flight = None;
        if self.0.is_batching && operation == Operation::Acquire {
            match self.start(slot, check, test_time, sent_flag) {
                Start::Alone(call) => in_flight = Some(call),
                Start::Queued(queued) => match queued.outcome().await {
                    BatchOutcome::Decided(result) => return result,
                    BatchOutcome::Undecided => {}
                },
            }
        }
        let call = ScriptCall::new(operation, slice::from_ref(check), test_time, sent_flag);
        let result = self.0.backend.run(slot, &call).await;
        drop(in_flight);
        result?.pop().flatten().ok_or(Failure::NotOurs)
    }

    /// Queues a check if a call is in flight in its slot. Otherwise the caller sends it.
    fn start<'a>(
        &'a self,
        slot: u16,
        check: &WireCheck,
        test_time: Option<u64>,
        sent_flag: &'a SentFlag,
    ) -> Start<'a> {
        let mut queues = self.lock();
        let Queues { by_slot, next_id } = &mut *queues;
        let queue = match by_slot.entry(slot) {
            Entry::Vacant(entry) => {
                entry.insert(SlotQueue::new(Instant::now()));
                return Start::Alone(self.call_in_flight(slot));
            }
            Entry::Occupied(entry) => entry.into_mut(),
        };
        let (sender, outcome) = oneshot::channel();
        let id = *next_id;
        *next_id += 1;
        let place = queue.push(id, check, test_time, sender);
        drop(queues);
        self.spawn_batch(slot, place);
        Start::Queued(QueuedCheck { batcher: self, slot, id, sent_flag, outcome, has_ended: false })
    }

    /// Starts a batch if there is a place for one. It has a task of its own, because a check that is
    /// dropped must not end the others. The task ends with the call, or when all of its checks were
    /// dropped.
    ///
    /// The queues must not be locked here: a batch that cannot be spawned is dropped, and its drop
    /// locks them.
    fn spawn_batch(&self, slot: u16, place: Option<BatchPlace>) {
        let Some(place) = place else { return };
        let batch =
            Batch { batcher: self.clone(), slot, place, in_flight: None, has_checks: false };
        if let Ok(runtime) = Handle::try_current() {
            runtime.spawn(batch.run());
        }
    }

    /// Takes the checks of a batch that has its turn from the queue of a slot.
    fn take_batch(&self, slot: u16) -> Vec<PendingCheck> {
        let mut queues = self.lock();
        let Some(queue) = queues.by_slot.get_mut(&slot) else { return Vec::new() };
        let (checks, place) = queue.take_batch();
        drop(queues);
        self.spawn_batch(slot, place);
        checks
    }

    /// Removes a check from its queue. Returns `false` if it is no longer there.
    fn remove(&self, slot: u16, id: u64) -> bool {
        self.lock().by_slot.get_mut(&slot).is_some_and(|queue| queue.remove(id))
    }

    fn call_in_flight(&self, slot: u16) -> CallInFlight {
        CallInFlight { batcher: self.clone(), slot }
    }

    fn lock(&self) -> MutexGuard<'_, Queues> {
        self.0.queues.lock()
    }
}

/// A check that waits in the queue, or for the reply to its batch.
///
/// If it is dropped while it is in the queue, it is removed and never sent. If it is dropped later,
/// it is marked as sent.
struct QueuedCheck<'a> {
    batcher: &'a Batcher,
    slot: u16,
    id: u64,
    sent_flag: &'a SentFlag,
    outcome: oneshot::Receiver<BatchOutcome>,
    has_ended: bool,
}

impl QueuedCheck<'_> {
    async fn outcome(mut self) -> BatchOutcome {
        let outcome = (&mut self.outcome).await;
        self.has_ended = true;
        outcome.unwrap_or_else(|_| BatchOutcome::Decided(Err(Failure::Lost(task_ended()))))
    }
}

impl Drop for QueuedCheck<'_> {
    fn drop(&mut self) {
        if !self.has_ended && !self.batcher.remove(self.slot, self.id) {
            self.sent_flag.mark_sent();
        }
    }
}

/// A guard of a call in flight. Its drop [ends the call](SlotQueue::end_call).
struct CallInFlight {
    batcher: Batcher,
    slot: u16,
}

impl Drop for CallInFlight {
    fn drop(&mut self) {
        let mut queues = self.batcher.lock();
        let Entry::Occupied(mut entry) = queues.by_slot.entry(self.slot) else { return };
        if !entry.get_mut().end_call() {
            entry.remove();
        }
    }
}

/// A batch of the checks of one slot. It waits for its turn, which the [`SlotQueue`] gives, or until it has
/// waited too long. The timer of that wait is the only one of its checks beside their deadlines.
struct Batch {
    batcher: Batcher,
    slot: u16,
    place: BatchPlace,
    /// `None` until it is its turn.
    in_flight: Option<CallInFlight>,
    /// True if the batch has taken its checks, or is not needed.
    has_checks: bool,
}

impl Batch {
    /// Sends the batch when it is its turn, and sends each check its outcome.
    ///
    /// The checks stay in the queue until there is a connection. A check that times out in the
    /// queue is removed, and so is certainly not charged.
    async fn run(mut self) {
        let turn = timeout_at(self.place.until, &mut self.place.turn).await;
        if !self.begin(turn.ok().map(|turn| turn.is_ok())) {
            return;
        }
        let (batcher, slot) = (self.batcher.clone(), self.slot);
        let ready = batcher.backend().ready(slot).await;
        let checks = self.take_checks();
        let Some(test_time) = checks.first().map(|first| first.test_time) else { return };
        let (checks, outcomes): (Vec<_>, Vec<_>) =
            checks.into_iter().map(|pending| (pending.check, pending.outcome)).unzip();
        if let Err(failure) = ready {
            drop(self);
            return send_all(outcomes, || BatchOutcome::Decided(Err(failure.clone())));
        }
        let sent_flag = SentFlag::default();
        let call = ScriptCall::new(Operation::Acquire, &checks, test_time, &sent_flag);
        let reply = pin!(batcher.backend().run(slot, &call));
        let (result, outcomes) = WhileAwaited { call: reply, outcomes }.await;
        // This drop ends the call in flight, so a batch that then has its turn is sent before the outcomes.
        drop(self);
        if let Some(result) = result {
            send_outcomes(outcomes, result);
        }
    }

    /// Begins the call, unless the batch is not needed. `has_turn` is `None` if the wait for the turn timed
    /// out. The batch then takes its turn itself. Returns whether the call has begun.
    fn begin(&mut self, has_turn: Option<bool>) -> bool {
        let mut queues = self.batcher.lock();
        let has_turn = has_turn.unwrap_or_else(|| match self.place.turn.try_recv() {
            Ok(()) => true,
            Err(TryRecvError::Empty) => {
                queues.by_slot.get_mut(&self.slot).is_some_and(SlotQueue::give_turn)
            }
            Err(TryRecvError::Closed) => false,
        });
        drop(queues);
        self.in_flight = has_turn.then(|| self.batcher.call_in_flight(self.slot));
        self.has_checks = !has_turn;
        has_turn
    }

    fn take_checks(&mut self) -> Vec<PendingCheck> {
        self.has_checks = true;
        let mut checks = self.batcher.take_batch(self.slot);
        checks.retain(|pending| !pending.outcome.is_closed());
        checks
    }
}

impl Drop for Batch {
    fn drop(&mut self) {
        // The batch was not sent, because the runtime has ended or there is none.
        if !self.has_checks && (self.in_flight.is_some() || self.begin(None)) {
            let checks = self.take_checks().into_iter();
            let outcomes = checks.map(|pending| pending.outcome).collect();
            send_all(outcomes, || BatchOutcome::Decided(Err(Failure::Dropped)));
        }
    }
}

fn task_ended() -> RedisError {
    io::Error::new(io::ErrorKind::Interrupted, "the task that sent the batch has ended").into()
}

impl fmt::Debug for BatcherShared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Batcher").field("backend", &self.backend).finish_non_exhaustive()
    }
}
