//! A worker: it owns one connection, and decides the requests of its queue in batches.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    sync::Arc,
};

use plimsoll::{
    Error,
    clock::Timestamp,
    store::{StateId, Step, StoreReply},
};
use tokio::{
    sync::{mpsc, oneshot},
    time::Instant,
};

use crate::{
    config::PostgresConfig,
    connection::{Connection, Row},
    error::Failure,
};

/// A request, and its caller.
#[derive(Debug)]
pub(crate) struct Job {
    pub(crate) step: Step,
    pub(crate) deadline: Option<Instant>,
    pub(crate) reply: oneshot::Sender<Result<StoreReply, Error>>,
}

/// The most requests of a batch.
const MAX_BATCH: usize = 64;

/// A batch with so many states takes no further request. A request has at most 32, so a batch locks at
/// most 63 names: the share of a connection in the server's table of locks is 64.
const FULL_BATCH: usize = 32;

/// The number of batches from one removal of expired rows to the next. Between two, a worker creates fewer
/// rows than [`MAX_REMOVED`](crate::connection::MAX_REMOVED).
const BATCHES_PER_REMOVAL: u32 = 16;

pub(crate) struct Worker {
    config: Arc<PostgresConfig>,
    /// `None` until it is needed, and after a failure.
    connection: Option<Connection>,
    batches: u32,
}

/// The replies to the requests of a batch, and the states that they have changed.
type Decided = (Vec<Result<StoreReply, Error>>, BTreeMap<StateId, Row>);

impl Worker {
    pub(crate) fn new(config: Arc<PostgresConfig>, connection: Option<Connection>) -> Self {
        Self { config, connection, batches: 0 }
    }

    /// Decides the requests of the queue until it is closed.
    pub(crate) async fn run(mut self, mut jobs: mpsc::Receiver<Job>) {
        while let Some(first) = jobs.recv().await {
            let (mut batch, mut ids) = (Vec::new(), BTreeSet::new());
            let mut next = Some(first);
            while let Some(job) = next.take() {
                // Nothing was sent for a caller that has stopped waiting, and nothing will be.
                let is_late = job.deadline.is_some_and(|deadline| deadline <= Instant::now());
                if !is_late && !job.reply.is_closed() {
                    ids.extend(job.step.ids());
                    batch.push(job);
                }
                if batch.len() < MAX_BATCH && ids.len() < FULL_BATCH {
                    next = jobs.try_recv().ok();
                }
            }
            if !batch.is_empty() {
                self.decide(batch, ids.into_iter().collect()).await;
            }
        }
    }

    /// Decides a batch, and replies to its callers.
    async fn decide(&mut self, batch: Vec<Job>, ids: Vec<StateId>) {
        let replies = match self.transact(&batch, &ids).await {
            Ok(replies) => replies,
            Err(failure) => {
                // Its transaction may still be open.
                self.connection = None;
                batch.iter().map(|_| Err(failure.to_error())).collect()
            }
        };
        for (job, reply) in batch.into_iter().zip(replies) {
            // A caller that has stopped waiting does not need the reply.
            let _ = job.reply.send(reply);
        }
    }

    async fn transact(
        &mut self,
        batch: &[Job],
        ids: &[StateId],
    ) -> Result<Vec<Result<StoreReply, Error>>, Failure> {
        let connection = match self.connection.take() {
            Some(connection) if connection.is_open() => connection,
            _ => Connection::open(&self.config).await?,
        };
        let connection = self.connection.insert(connection);
        let (time, states) = connection.begin(ids).await?;
        let time = self.config.test_clock.as_ref().map_or(time, |clock| clock.now());
        let (replies, changed) = decided(batch, states, time);
        match changed.is_empty() {
            true => connection.end(),
            false => connection.commit(&changed).await?,
        }
        self.batches += 1;
        if self.batches.is_multiple_of(BATCHES_PER_REMOVAL) {
            connection.remove_expired(time);
        }
        Ok(replies)
    }
}

/// Executes the requests of a batch one after the other.
fn decided(batch: &[Job], mut states: HashMap<StateId, Vec<u8>>, time: Timestamp) -> Decided {
    let mut changed = BTreeMap::new();
    let replies = batch.iter().map(|job| {
        let step = job.step.run(time, |id| states.get(id).map(Vec::as_slice));
        let (reply, changes) = step?;
        for change in changes {
            let row = Row { state: change.bytes.clone(), expires_at: change.expires_at };
            changed.insert(change.id, row);
            states.insert(change.id, change.bytes);
        }
        Ok(reply)
    });
    (replies.collect(), changed)
}
