//! Checks that come while a call is on its way share the next one.
//!
//! A check alone goes at once. Those that come meanwhile wait until the call has ended, or until
//! they are enough for a call of their own, and are decided one by one, in the order in which they
//! came, by a single call of the script: the busier the store, the less a check costs it.

use std::{
    collections::{HashMap, hash_map::Entry},
    fmt, io, mem,
    pin::{Pin, pin},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    task::{Context, Poll},
    time::Duration,
};

use redis::{RedisError, Value};
use tokio::{
    runtime::Handle,
    sync::oneshot,
    time::{Instant, timeout},
};

use super::{
    backend::Backend,
    error::Failure,
    script::Invocation,
    wire::{Check, Operation, Reply},
};

/// The most lines of a call that several checks share, so that it is short for the server.
const MOST: usize = 64;
/// A call that is on its way for longer than this keeps nobody waiting.
const PATIENCE: Duration = Duration::from_millis(5);

/// Calls of the script, shared by the checks of one slot. Cheap to clone.
#[derive(Debug, Clone)]
pub(super) struct Calls(Arc<Sharing>);

struct Sharing {
    backend: Backend,
    shared: bool,
    /// The slots that have calls on their way. A single server is one slot.
    slots: Mutex<HashMap<u16, SlotQueue>>,
}

struct SlotQueue {
    on_their_way: usize,
    departed: Instant,
    waiting: Vec<Waiting>,
    lines: usize,
}

struct Waiting {
    check: Check,
    now: Option<u64>,
    answer: oneshot::Sender<Outcome>,
}

/// What comes of a check that waited for a call to share.
enum Outcome {
    Answered(Result<Reply, Failure>),
    /// It could not be decided along with others, and spent nothing.
    Alone(Check),
}

impl Calls {
    pub(super) fn new(backend: Backend, shared: bool) -> Self {
        Self(Arc::new(Sharing { backend, shared, slots: Mutex::default() }))
    }

    pub(super) fn backend(&self) -> &Backend {
        &self.0.backend
    }

    /// Runs the script for one check, in a call that others may share.
    pub(super) async fn acquire(
        &self,
        slot: u16,
        check: Check,
        now: Option<u64>,
    ) -> Result<Reply, Failure> {
        let (check, _flight) = if self.0.shared {
            match self.depart_or_wait(slot, check, now) {
                Ok((check, flight)) => (check, Some(flight)),
                Err(mut answer) => {
                    let outcome = match timeout(PATIENCE, &mut answer).await {
                        Ok(outcome) => outcome,
                        Err(_) => {
                            self.hurry(slot);
                            answer.await
                        }
                    };
                    match outcome {
                        Ok(Outcome::Answered(answer)) => return answer,
                        Ok(Outcome::Alone(check)) => (check, None),
                        Err(_) => return Err(Failure::Lost(gone())),
                    }
                }
            }
        } else {
            (check, None)
        };
        self.call(slot, Operation::Acquire, check, now).await
    }

    /// Runs the script for this alone.
    pub(super) fn call(
        &self,
        slot: u16,
        operation: Operation,
        check: Check,
        now: Option<u64>,
    ) -> impl Future<Output = Result<Reply, Failure>> + Send {
        let calls = self.clone();
        // Boxed, so that a check that waits for a call to share needs no room for one.
        Box::pin(async move {
            let call = Invocation::new(operation, [check], now);
            let value = calls.0.backend.send(slot, &call).await?;
            call.read(&value)?.pop().flatten().ok_or(Failure::NotOurs)
        })
    }

    /// The check itself if it is to go at once, alone.
    fn depart_or_wait(
        &self,
        slot: u16,
        check: Check,
        now: Option<u64>,
    ) -> Result<(Check, Flight), oneshot::Receiver<Outcome>> {
        let time = Instant::now();
        let mut slots = self.lock();
        let queue = match slots.entry(slot) {
            Entry::Vacant(entry) => {
                entry.insert(SlotQueue::departing(time));
                return Ok((check, self.flight(slot)));
            }
            Entry::Occupied(entry) => entry.into_mut(),
        };
        let (answer, receiver) = oneshot::channel();
        queue.lines += check.len();
        queue.waiting.push(Waiting { check, now, answer });
        if queue.lines >= MOST || time - queue.departed >= PATIENCE {
            let batch = queue.depart(time);
            drop(slots);
            self.send_together(slot, batch);
        }
        Err(receiver)
    }

    /// The call on its way takes too long: those who wait for it go without it.
    fn hurry(&self, slot: u16) {
        let mut slots = self.lock();
        let Some(queue) = slots.get_mut(&slot) else { return };
        if !queue.waiting.is_empty() {
            let batch = queue.depart(Instant::now());
            drop(slots);
            self.send_together(slot, batch);
        }
    }

    /// In a task, because none of those who share a call may end it for the others. It ends with
    /// the call, or when nobody waits for it any more.
    fn send_together(&self, slot: u16, batch: Vec<Waiting>) {
        let flight = self.flight(slot);
        if let Ok(runtime) = Handle::try_current() {
            runtime.spawn(flight.carry(batch));
        }
    }

    fn flight(&self, slot: u16) -> Flight {
        Flight { calls: self.clone(), slot }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<u16, SlotQueue>> {
        self.0.slots.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl SlotQueue {
    /// With a first call on its way.
    fn departing(time: Instant) -> Self {
        Self { on_their_way: 1, departed: time, waiting: Vec::new(), lines: 0 }
    }

    /// Takes out those who go together now: the first that fit into a call, all under one time.
    fn depart(&mut self, time: Instant) -> Vec<Waiting> {
        let mut lines = 0;
        let now = self.waiting.first().and_then(|first| first.now);
        let fits = |it: &&Waiting| {
            lines += it.check.len();
            (lines <= MOST || lines == it.check.len()) && it.now == now
        };
        let count = self.waiting.iter().take_while(fits).count();
        let rest = self.waiting.split_off(count);
        let batch = mem::replace(&mut self.waiting, rest);
        self.lines = self.waiting.iter().map(|it| it.check.len()).sum();
        self.on_their_way += 1;
        self.departed = time;
        batch
    }
}

/// A call on its way. When it ends, however it ends, those who came meanwhile go.
struct Flight {
    calls: Calls,
    slot: u16,
}

impl Flight {
    async fn carry(self, mut batch: Vec<Waiting>) {
        // Whoever has given up is charged nothing.
        batch.retain(|it| !it.answer.is_closed());
        let Some(now) = batch.first().map(|first| first.now) else { return };
        let (checks, answers): (Vec<_>, Vec<_>) =
            batch.into_iter().map(|it| (it.check, it.answer)).unzip();
        let call = Invocation::new(Operation::Acquire, checks, now);
        let calls = self.calls.clone();
        let sent = calls.0.backend.send(self.slot, &call);
        let (answer, answers) = WhileAwaited { call: pin!(sent), answers }.await;
        drop(self);
        let Some(answer) = answer else { return };
        for (waiting, outcome) in answers.into_iter().zip(deal(call, answer)) {
            // Whoever does not wait any more does not want it.
            let _ = waiting.send(outcome);
        }
    }
}

impl Drop for Flight {
    fn drop(&mut self) {
        let mut slots = self.calls.lock();
        let Entry::Occupied(mut entry) = slots.entry(self.slot) else { return };
        let slot = entry.get_mut();
        slot.on_their_way -= 1;
        // The last to come back takes along who waits: if each did, calls would stay small.
        if slot.on_their_way > 0 {
            return;
        }
        if slot.waiting.is_empty() {
            entry.remove();
        } else {
            let batch = slot.depart(Instant::now());
            drop(slots);
            self.calls.send_together(self.slot, batch);
        }
    }
}

/// Deals out the answer to a call that several checks share.
fn deal(call: Invocation, answer: Result<Value, Failure>) -> Vec<Outcome> {
    let replies = answer.and_then(|value| call.read(&value));
    let checks = call.checks.into_iter();
    match replies {
        Ok(replies) => checks
            .zip(replies)
            .map(|(check, reply)| match reply {
                Some(reply) => Outcome::Answered(Ok(reply)),
                None => Outcome::Alone(check),
            })
            .collect(),
        Err(failure) if failure.spares_some() => checks.map(Outcome::Alone).collect(),
        Err(failure) => checks.map(|_| Outcome::Answered(Err(failure.clone()))).collect(),
    }
}

/// A call for as long as somebody waits for its answer.
struct WhileAwaited<'f, F> {
    call: Pin<&'f mut F>,
    answers: Vec<oneshot::Sender<Outcome>>,
}

impl<F: Future> Future for WhileAwaited<'_, F> {
    type Output = (Option<F::Output>, Vec<oneshot::Sender<Outcome>>);

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = &mut *self;
        if let Poll::Ready(answer) = this.call.as_mut().poll(cx) {
            return Poll::Ready((Some(answer), mem::take(&mut this.answers)));
        }
        // One that still waits is enough, and it wakes this when it gives up.
        while let Some(last) = this.answers.last_mut() {
            if last.poll_closed(cx).is_pending() {
                return Poll::Pending;
            }
            this.answers.pop();
        }
        Poll::Ready((None, Vec::new()))
    }
}

fn gone() -> RedisError {
    io::Error::new(io::ErrorKind::Interrupted, "the task that shared this call has ended").into()
}

impl fmt::Debug for Sharing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Calls").field("backend", &self.backend).finish_non_exhaustive()
    }
}
