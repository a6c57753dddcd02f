//! The queue of tasks that wait until their charges are admitted. Tasks with the same key take turns,
//! in the order of their arrival.

use std::{
    collections::HashMap,
    sync::{
        Arc, MutexGuard,
        atomic::{AtomicBool, Ordering},
    },
};

use tokio::{
    sync::{Mutex as FairMutex, OwnedMutexGuard},
    time::{Instant, timeout_at},
};

use crate::{
    error::{Error, ErrorKind},
    key::Key,
    policy::Charge,
    runtime::runtime_with_timer,
    sync::Mutex,
};

/// The id of a policy, and a key.
type KeyQueueId = (u64, Key);

/// The queue of the tasks that wait for one key.
#[derive(Debug, Default)]
struct KeyQueue {
    /// A tokio mutex is fair: the first task in is the first out.
    first: Arc<FairMutex<()>>,
    /// True while the first task waits for the store to answer again.
    is_store_down: AtomicBool,
}

#[derive(Debug)]
pub(super) struct Queue {
    waiting: Mutex<Waiting>,
    max_tasks: usize,
}

#[derive(Debug, Default)]
struct Waiting {
    tasks: usize,
    queues: HashMap<KeyQueueId, Arc<KeyQueue>>,
}

/// The place of a task in the queue of each of its keys, and the queues whose first task it is.
pub(super) struct Turn<'q> {
    queue: &'q Queue,
    queues: Vec<(KeyQueueId, Arc<KeyQueue>)>,
    acquired: Vec<OwnedMutexGuard<()>>,
}

impl Queue {
    pub(super) fn new(max_tasks: usize) -> Self {
        Self { waiting: Mutex::default(), max_tasks }
    }

    /// Waits until the task is the first in the queues of all its keys.
    pub(super) async fn turn(
        &self,
        charges: &[Charge<'_>],
        deadline: Instant,
    ) -> Result<Turn<'_>, Error> {
        let mut turn = self.enter(charges)?;
        // All tasks acquire queues in the same order, so that they cannot deadlock.
        for index in 0..turn.queues.len() {
            let queue = &turn.queues[index].1;
            let guard = match Arc::clone(&queue.first).try_lock_owned() {
                Ok(guard) => guard,
                Err(_) => queue.wait(deadline).await?,
            };
            turn.acquired.push(guard);
        }
        Ok(turn)
    }

    /// Returns the number of tasks that wait for the key of a charge.
    pub(super) fn waiting_for(&self, charge: &Charge<'_>) -> u64 {
        let waiting = self.lock();
        // The map has one reference, and each task has one.
        waiting.queues.get(&id(charge)).map_or(0, |queue| Arc::strong_count(queue) as u64 - 1)
    }

    fn enter(&self, charges: &[Charge<'_>]) -> Result<Turn<'_>, Error> {
        let mut ids: Vec<KeyQueueId> = charges.iter().map(id).collect();
        ids.sort_unstable();
        ids.dedup();
        let mut waiting = self.lock();
        if waiting.tasks >= self.max_tasks {
            let message = format!("{} tasks wait already, which is the maximum", self.max_tasks);
            return Err(Error::new(ErrorKind::QueueFull, message));
        }
        waiting.tasks += 1;
        let queues =
            ids.into_iter().map(|id| (id, Arc::clone(waiting.queues.entry(id).or_default())));
        Ok(Turn { queue: self, queues: queues.collect(), acquired: Vec::new() })
    }

    fn lock(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock()
    }
}

fn id(charge: &Charge<'_>) -> KeyQueueId {
    (charge.policy().id(), *charge.key())
}

impl KeyQueue {
    /// Waits until the task is the first.
    async fn wait(&self, deadline: Instant) -> Result<OwnedMutexGuard<()>, Error> {
        require_timer()?;
        let first = Arc::clone(&self.first).lock_owned();
        timeout_at(deadline, first).await.map_err(|_| {
            let (kind, message) = match self.is_store_down.load(Ordering::Relaxed) {
                true => (ErrorKind::Unavailable, "the store did not answer until the deadline"),
                false => {
                    (ErrorKind::Deadline, "other tasks waited for the same key until the deadline")
                }
            };
            Error::new(kind, message)
        })
    }
}

impl Turn<'_> {
    /// Tells the tasks behind this one why they wait.
    pub(super) fn set_store_down(&self, is_down: bool) {
        for (_, queue) in &self.queues {
            queue.is_store_down.store(is_down, Ordering::Relaxed);
        }
    }
}

/// Returns an error outside of a tokio runtime with timers.
pub(crate) fn require_timer() -> Result<(), Error> {
    let message = "a wait needs a tokio runtime with time enabled (enable_time)";
    runtime_with_timer().map(drop).ok_or_else(|| Error::new(ErrorKind::Invalid, message))
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        self.acquired.clear();
        let mut waiting = self.queue.lock();
        waiting.tasks -= 1;
        for (id, queue) in self.queues.drain(..) {
            drop(queue);
            // Tasks enter a queue under the lock that is held here. If the map holds the only
            // reference, no task is in the queue.
            if waiting.queues.get(&id).is_some_and(|queue| Arc::strong_count(queue) == 1) {
                waiting.queues.remove(&id);
            }
        }
    }
}
