//! Turns: those who wait for the same key go one after the other, in the order of their arrival.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use tokio::{
    sync::{Mutex as Turns, OwnedMutexGuard},
    time::{Instant, timeout_at},
};

use super::Charges;
use crate::{
    error::{Error, ErrorKind},
    key::Key,
};

type QueueKey = (u64, Key);

#[derive(Debug)]
pub(super) struct Queue {
    waiting: Mutex<Waiting>,
    most: usize,
}

#[derive(Debug, Default)]
struct Waiting {
    tasks: usize,
    lines: HashMap<QueueKey, Arc<Turns<()>>>,
}

/// A place in the queue of each key, and when it has come up, the turn itself.
pub(super) struct Turn<'q> {
    queue: &'q Queue,
    lines: Vec<(QueueKey, Arc<Turns<()>>)>,
    held: Vec<OwnedMutexGuard<()>>,
}

impl Queue {
    pub(super) fn new(most: usize) -> Self {
        Self { waiting: Mutex::default(), most }
    }

    pub(super) async fn turn(
        &self,
        charges: &Charges<'_>,
        deadline: Instant,
    ) -> Result<Turn<'_>, Error> {
        let mut turn = self.enter(charges)?;
        // In the order of the lines, so that nobody waits for each other in a circle; and tokio's
        // mutex is first come, first served.
        for index in 0..turn.lines.len() {
            let line = Arc::clone(&turn.lines[index].1).lock_owned();
            let held = timeout_at(deadline, line).await.map_err(|_| {
                Error::new(ErrorKind::Deadline, "others waited for the same key until the deadline")
            })?;
            turn.held.push(held);
        }
        Ok(turn)
    }

    fn enter(&self, charges: &Charges<'_>) -> Result<Turn<'_>, Error> {
        let mut names: Vec<QueueKey> =
            charges.iter().map(|charge| (charge.policy().id(), *charge.key())).collect();
        names.sort_unstable();
        names.dedup();
        let mut waiting = self.lock();
        if waiting.tasks >= self.most {
            let message = format!("{} tasks wait already, which is the most", self.most);
            return Err(Error::new(ErrorKind::QueueFull, message));
        }
        waiting.tasks += 1;
        let lines = names
            .into_iter()
            .map(|name| (name, Arc::clone(waiting.lines.entry(name).or_default())));
        Ok(Turn { queue: self, lines: lines.collect(), held: Vec::new() })
    }

    fn lock(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        self.held.clear();
        let mut waiting = self.queue.lock();
        waiting.tasks -= 1;
        for (name, line) in self.lines.drain(..) {
            drop(line);
            // Whoever enters does so under this lock: with one owner left, nobody is in line.
            if waiting.lines.get(&name).is_some_and(|line| Arc::strong_count(line) == 1) {
                waiting.lines.remove(&name);
            }
        }
    }
}
