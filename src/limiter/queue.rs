//! The queue of tasks that wait until their charges are admitted. Tasks with the same key take turns,
//! in the order of their arrival.

use std::{
    collections::{HashMap, VecDeque},
    sync::{
        Arc, MutexGuard,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use smallvec::SmallVec;
use tokio::{
    sync::Notify,
    time::{Instant, timeout_at},
};

use crate::{
    algorithm::Ahead,
    error::{Error, ErrorKind},
    key::Key,
    policy::Charge,
    quota::Quota,
    runtime::runtime_with_timer,
    sync::Mutex,
};

/// The longest wait of a task, so that its deadline can be computed.
pub(super) const MAX_WITHIN: Duration = Duration::from_secs(86_400 * 365);

/// The id of a policy, and a key.
type KeyQueueId = (u64, Key);

/// The maximum number of tasks that wait at once.
pub(super) const MAX_TASKS: usize = 10_000;

#[derive(Debug, Default)]
pub(super) struct Queue {
    waiting: Mutex<Waiting>,
    tickets: AtomicU64,
}

#[derive(Debug, Default)]
struct Waiting {
    tasks: usize,
    queues: HashMap<KeyQueueId, KeyQueue>,
}

/// The queue of the tasks that wait for one key.
#[derive(Debug, Default)]
struct KeyQueue {
    /// In the order of their tickets.
    places: VecDeque<Place>,
}

#[derive(Debug)]
struct Place {
    ticket: Ticket,
    /// The units for which the task waits.
    units: u64,
    /// Wakes the task when it becomes the first.
    turn: Arc<Notify>,
}

/// The number of a task in the order of arrival.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Ticket(u64);

/// The place of a task in the queue of each of its keys. If it is dropped, the task leaves the queues.
pub(super) struct Turn<'q> {
    queue: &'q Queue,
    ids: SmallVec<[KeyQueueId; 1]>,
    ticket: Ticket,
    turn: Arc<Notify>,
}

impl Queue {
    /// Returns the ticket of a task that arrives now.
    pub(super) fn ticket(&self) -> Ticket {
        Ticket(self.tickets.fetch_add(1, Ordering::Relaxed))
    }

    /// Enters the queues of these charges, in front of the tasks that arrived later.
    ///
    /// All queues have the same order, so tasks with several keys cannot lock each other out.
    pub(super) fn enter(&self, charges: &[Charge<'_>], ticket: Ticket) -> Result<Turn<'_>, Error> {
        let mut waiting = self.lock();
        if waiting.tasks >= MAX_TASKS {
            let message = format!("{MAX_TASKS} tasks wait already, which is the maximum");
            return Err(Error::new(ErrorKind::QueueFull, message));
        }
        waiting.tasks += 1;
        let turn = Arc::new(Notify::new());
        let mut ids = SmallVec::<[KeyQueueId; 1]>::new();
        for charge in charges {
            // A shadow is not refused, and a cost over the capacity is denied at once.
            let waits = charge.is_live() && charge.cost() <= charge.quota().capacity();
            let units = if waits { charge.cost() } else { 0 };
            let id = id(charge);
            if waiting.queues.entry(id).or_default().enter(ticket, units, &turn) {
                ids.push(id);
            }
        }
        Ok(Turn { queue: self, ids, ticket, turn })
    }

    /// Returns whether tasks wait for the key of a charge.
    pub(super) fn is_awaited(&self, charge: &Charge<'_>) -> bool {
        self.lock().queues.contains_key(&id(charge))
    }

    /// Returns the units for which tasks with earlier tickets wait, with the units of the charge. Returns
    /// `None` if no such task waits. `quota` is the quota by which the store counts.
    pub(super) fn ahead(
        &self,
        charge: &Charge<'_>,
        quota: &Quota,
        ticket: Ticket,
    ) -> Option<Ahead> {
        let waiting = self.lock();
        let queue = waiting.queues.get(&id(charge))?;
        let before = queue.places.partition_point(|place| place.ticket < ticket);
        let units = queue.places.range(..before).map(|place| place.units);
        let units = units.fold(0, u64::saturating_add);
        (before > 0).then(|| Ahead::new(quota, charge.cost(), units, |units| queue.reaching(units)))
    }

    fn lock(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock()
    }
}

fn id(charge: &Charge<'_>) -> KeyQueueId {
    (charge.policy().id(), *charge.key())
}

impl KeyQueue {
    /// Adds a task that waits for `units`. Returns `false` if it has a place already, which then stands
    /// for these units too.
    fn enter(&mut self, ticket: Ticket, units: u64, turn: &Arc<Notify>) -> bool {
        let index = self.places.partition_point(|place| place.ticket < ticket);
        match self.places.get_mut(index).filter(|place| place.ticket == ticket) {
            Some(place) => {
                place.units = place.units.saturating_add(units);
                false
            }
            None => {
                let place = Place { ticket, units, turn: Arc::clone(turn) };
                self.places.insert(index, place);
                true
            }
        }
    }

    fn leave(&mut self, ticket: Ticket) {
        if let Ok(index) = self.places.binary_search_by_key(&ticket, |place| place.ticket) {
            self.places.remove(index);
        }
    }

    /// Returns the units up to the first task with which they reach `units`.
    fn reaching(&self, units: u64) -> u64 {
        let mut sum = 0_u64;
        for place in &self.places {
            sum = sum.saturating_add(place.units);
            if sum >= units {
                return sum;
            }
        }
        units
    }
}

impl Turn<'_> {
    /// Waits until the task is the first in the queues of all its keys.
    pub(super) async fn first(&self, deadline: Instant) -> Result<(), Error> {
        while !self.is_first() {
            require_timer()?;
            let turn = timeout_at(deadline, self.turn.notified());
            turn.await.map_err(|_| {
                let message = "other tasks waited for the same key until the deadline";
                Error::new(ErrorKind::Deadline, message)
            })?;
        }
        Ok(())
    }

    fn is_first(&self) -> bool {
        let waiting = self.queue.lock();
        let mut first = self.ids.iter().filter_map(|id| waiting.queues.get(id)?.places.front());
        first.all(|place| place.ticket == self.ticket)
    }
}

/// Returns an error outside of a tokio runtime with timers.
pub(super) fn require_timer() -> Result<(), Error> {
    let message = "a wait needs a tokio runtime with time enabled (enable_time)";
    runtime_with_timer().map(drop).ok_or_else(|| Error::new(ErrorKind::Invalid, message))
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        let mut waiting = self.queue.lock();
        waiting.tasks -= 1;
        for id in &self.ids {
            let Some(queue) = waiting.queues.get_mut(id) else { continue };
            queue.leave(self.ticket);
            match queue.places.front() {
                Some(first) => first.turn.notify_one(),
                None => drop(waiting.queues.remove(id)),
            }
        }
    }
}
