//! Batches: checks that arrive while a call is in flight share the next one.
//!
//! A check that finds no call in flight is sent at once, alone. Checks that arrive meanwhile are
//! queued until that call has ended, or until they fill a call of their own. One call of the script
//! then decides them one by one, in the order in which they arrived. So the busier the server is,
//! the less each check costs it.

use std::{
    collections::{HashMap, VecDeque, hash_map::Entry},
    fmt, io, slice,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use redis::RedisError;
use tokio::{
    runtime::Handle,
    sync::oneshot,
    time::{Instant, timeout},
};

use super::{
    backend::Backend,
    batch_call::BatchCall,
    departure::Departure,
    error::Failure,
    reply::CheckReply,
    script::ScriptCall,
    wire::{Operation, WireCheck},
};

/// The most charges in a batch, so that one call does not keep the server busy for long.
pub(super) const MAX_BATCH_CHARGES: usize = 64;
/// The longest time that a queued check waits for a call in flight. Then it is sent without waiting
/// for the reply to that call.
const MAX_BATCH_WAIT: Duration = Duration::from_millis(5);

/// Runs the script for checks, several in one call where they are in one slot. Cheap to clone.
#[derive(Debug, Clone)]
pub(super) struct Batcher(Arc<Shared>);

struct Shared {
    backend: Backend,
    is_batching: bool,
    /// The slots with calls in flight. A single server is one slot.
    queues: Mutex<HashMap<u16, SlotQueue>>,
}

/// The calls in flight and the queued checks of one slot.
#[derive(Default)]
struct SlotQueue {
    calls_in_flight: usize,
    /// The batches among them that have not taken their checks from the queue yet.
    unsent_batches: usize,
    /// A check has waited too long while there was an unsent batch, which may not have room for it.
    needs_flush: bool,
    last_call: Option<Instant>,
    /// In the order of their ids.
    checks: VecDeque<PendingCheck>,
    charges: usize,
    next_id: u64,
}

/// A check in the queue.
pub(super) struct PendingCheck {
    id: u64,
    pub(super) check: Box<WireCheck>,
    pub(super) test_time: Option<u64>,
    pub(super) outcome: oneshot::Sender<BatchOutcome>,
}

/// The outcome of a check that was part of a batch.
pub(super) enum BatchOutcome {
    Decided(Result<CheckReply, Failure>),
    /// The batch could not decide the check together with the others, and spent nothing for it.
    Undecided,
}

/// The first step of a check.
enum Start<'a> {
    /// It is sent at once.
    Alone(CallInFlight),
    Queued(QueuedCheck<'a>),
}

impl Batcher {
    pub(super) fn new(backend: Backend, is_batching: bool) -> Self {
        Self(Arc::new(Shared { backend, is_batching, queues: Mutex::default() }))
    }

    pub(super) fn backend(&self) -> &Backend {
        &self.0.backend
    }

    /// Runs the script for one check. To acquire, it may share a call with others.
    pub(super) async fn run(
        &self,
        slot: u16,
        operation: Operation,
        check: &WireCheck,
        test_time: Option<u64>,
        departure: &Departure,
    ) -> Result<CheckReply, Failure> {
        let mut in_flight = None;
        if self.0.is_batching && operation == Operation::Acquire {
            match self.start(slot, check, test_time, departure) {
                Start::Alone(call) => in_flight = Some(call),
                Start::Queued(queued) => match queued.outcome().await {
                    BatchOutcome::Decided(result) => return result,
                    BatchOutcome::Undecided => {}
                },
            }
        }
        let call = ScriptCall::new(operation, slice::from_ref(check), test_time, departure);
        let result = self.0.backend.run(slot, &call).await;
        drop(in_flight);
        result?.pop().flatten().ok_or(Failure::NotOurs)
    }

    /// Queues a check if there is a call in flight in its slot.
    fn start<'a>(
        &'a self,
        slot: u16,
        check: &WireCheck,
        test_time: Option<u64>,
        departure: &'a Departure,
    ) -> Start<'a> {
        let now = Instant::now();
        let mut queues = self.lock();
        let queue = match queues.entry(slot) {
            Entry::Vacant(entry) => {
                let queue = entry.insert(SlotQueue::default());
                queue.calls_in_flight = 1;
                queue.last_call = Some(now);
                return Start::Alone(self.call_in_flight(slot));
            }
            Entry::Occupied(entry) => entry.into_mut(),
        };
        let (outcome, receiver) = oneshot::channel();
        let id = queue.push(check, test_time, outcome);
        if queue.fills_another_batch() || queue.is_overdue(now) {
            queue.begin_batch(now);
            drop(queues);
            self.spawn_batch(slot);
        }
        Start::Queued(QueuedCheck { batcher: self, slot, id, departure, outcome: Some(receiver) })
    }

    /// Sends a batch, because the call in flight takes too long. If one is about to be sent, another
    /// one follows it as long as there are checks left.
    fn flush(&self, slot: u16) {
        let mut queues = self.lock();
        let Some(queue) = queues.get_mut(&slot) else { return };
        queue.needs_flush = true;
        if queue.begin_flush() {
            drop(queues);
            self.spawn_batch(slot);
        }
    }

    /// Sends a batch from a task of its own: a check that is dropped must not end the others. The
    /// task ends with the call, or when all of its checks were dropped.
    ///
    /// The queues must not be locked: a batch that cannot be spawned is dropped, and locks them.
    fn spawn_batch(&self, slot: u16) {
        let call = BatchCall::new(self.call_in_flight(slot));
        if let Ok(runtime) = Handle::try_current() {
            runtime.spawn(call.run());
        }
    }

    /// Takes the checks of the next batch from the queue of a slot.
    pub(super) fn take_batch(&self, slot: u16) -> Vec<PendingCheck> {
        let mut queues = self.lock();
        let Some(queue) = queues.get_mut(&slot) else { return Vec::new() };
        let checks = queue.take_batch();
        if queue.begin_flush() {
            drop(queues);
            self.spawn_batch(slot);
        }
        checks
    }

    /// Removes a check from its queue. Returns `false` if it is not there any more.
    fn remove(&self, slot: u16, id: u64) -> bool {
        self.lock().get_mut(&slot).is_some_and(|queue| queue.remove(id))
    }

    fn call_in_flight(&self, slot: u16) -> CallInFlight {
        CallInFlight { batcher: self.clone(), slot }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<u16, SlotQueue>> {
        self.0.queues.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl SlotQueue {
    fn push(
        &mut self,
        check: &WireCheck,
        test_time: Option<u64>,
        outcome: oneshot::Sender<BatchOutcome>,
    ) -> u64 {
        let id = self.next_id;
        self.next_id += 1;
        self.charges += check.charges().len();
        let check = Box::new(check.clone());
        self.checks.push_back(PendingCheck { id, check, test_time, outcome });
        id
    }

    /// Counts a batch that is about to be sent.
    fn begin_batch(&mut self, now: Instant) {
        self.calls_in_flight += 1;
        self.unsent_batches += 1;
        self.last_call = Some(now);
    }

    /// Begins a batch if a flush is needed and none is about to be sent.
    fn begin_flush(&mut self) -> bool {
        if !self.needs_flush || self.unsent_batches > 0 {
            return false;
        }
        self.needs_flush = !self.checks.is_empty();
        if self.needs_flush {
            self.begin_batch(Instant::now());
        }
        self.needs_flush
    }

    /// Returns whether the checks fill one more batch than those that are about to be sent.
    fn fills_another_batch(&self) -> bool {
        self.charges >= MAX_BATCH_CHARGES * (self.unsent_batches + 1)
    }

    fn is_overdue(&self, now: Instant) -> bool {
        let is_late = self.last_call.is_some_and(|last| now - last >= MAX_BATCH_WAIT);
        is_late && self.unsent_batches == 0
    }

    /// Takes the first checks that fit into a call. All of them have the same time.
    fn take_batch(&mut self) -> Vec<PendingCheck> {
        self.unsent_batches = self.unsent_batches.saturating_sub(1);
        let test_time = self.checks.front().and_then(|first| first.test_time);
        let mut charges = 0;
        let mut count = 0;
        for pending in &self.checks {
            let with_this = charges + pending.check.charges().len();
            let fits = with_this <= MAX_BATCH_CHARGES || count == 0;
            if !fits || pending.test_time != test_time {
                break;
            }
            charges = with_this;
            count += 1;
        }
        self.charges -= charges;
        self.checks.drain(..count).collect()
    }

    fn remove(&mut self, id: u64) -> bool {
        let Ok(index) = self.checks.binary_search_by_key(&id, |pending| pending.id) else {
            return false;
        };
        if let Some(removed) = self.checks.remove(index) {
            self.charges -= removed.check.charges().len();
        }
        true
    }
}

/// A check that waits in the queue or for the reply to its batch.
///
/// Dropped while it is in the queue, it is removed: it will not be sent. Dropped later, it counts as
/// sent.
struct QueuedCheck<'a> {
    batcher: &'a Batcher,
    slot: u16,
    id: u64,
    departure: &'a Departure,
    /// `None` once the outcome is known.
    outcome: Option<oneshot::Receiver<BatchOutcome>>,
}

impl QueuedCheck<'_> {
    async fn outcome(mut self) -> BatchOutcome {
        let Some(receiver) = &mut self.outcome else { return BatchOutcome::Undecided };
        let outcome = match timeout(MAX_BATCH_WAIT, &mut *receiver).await {
            Ok(outcome) => outcome,
            Err(_) => {
                self.batcher.flush(self.slot);
                receiver.await
            }
        };
        self.outcome = None;
        outcome.unwrap_or_else(|_| BatchOutcome::Decided(Err(Failure::Lost(task_ended()))))
    }
}

impl Drop for QueuedCheck<'_> {
    fn drop(&mut self) {
        if self.outcome.is_some() && !self.batcher.remove(self.slot, self.id) {
            self.departure.depart();
        }
    }
}

/// A call in flight. When it ends, in whatever way, the checks that were queued meanwhile are sent.
pub(super) struct CallInFlight {
    pub(super) batcher: Batcher,
    pub(super) slot: u16,
}

impl Drop for CallInFlight {
    fn drop(&mut self) {
        let mut queues = self.batcher.lock();
        let Entry::Occupied(mut entry) = queues.entry(self.slot) else { return };
        let queue = entry.get_mut();
        queue.calls_in_flight -= 1;
        // Only the last call takes the queue along: if each did, batches would stay small.
        if queue.calls_in_flight > 0 {
            return;
        }
        if queue.checks.is_empty() {
            entry.remove();
        } else {
            queue.begin_batch(Instant::now());
            drop(queues);
            self.batcher.spawn_batch(self.slot);
        }
    }
}

fn task_ended() -> RedisError {
    io::Error::new(io::ErrorKind::Interrupted, "the task that sent the batch has ended").into()
}

impl fmt::Debug for Shared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Batcher").field("backend", &self.backend).finish_non_exhaustive()
    }
}
