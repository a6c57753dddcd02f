//! A worker: it owns one connection, and decides the requests of its queue in batches.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    sync::Arc,
};

use plimsoll::{
    Error,
    clock::Timestamp,
    store::{StateChange, StateId, Step, StoreReply},
};
use tokio::{
    join,
    sync::{mpsc, oneshot},
};

use crate::{
    config::PostgresConfig,
    connection::{Begun, Connection},
    error::Failure,
};

/// A request, and its caller.
pub(crate) struct Job {
    pub(crate) step: Step,
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
    pub(crate) config: Arc<PostgresConfig>,
    /// `None` until it is needed, and after a failure.
    pub(crate) connection: Option<Connection>,
    /// The number of batches that were decided.
    pub(crate) batches: u32,
}

/// The replies to the requests of a batch, and the states that they have changed.
type Decided = (Vec<Result<StoreReply, Error>>, BTreeMap<StateId, StateChange>);

/// The requests of one transaction, and the states that they need.
#[derive(Default)]
struct Batch {
    jobs: Vec<Job>,
    ids: BTreeSet<StateId>,
}

impl Batch {
    /// Takes the requests that wait, behind `first`.
    fn of(first: Option<Job>, waiting: &mut mpsc::Receiver<Job>) -> Self {
        let mut batch = Self::default();
        let mut next = first.or_else(|| waiting.try_recv().ok());
        while let Some(job) = next.take() {
            // Nothing was sent for a caller that has stopped waiting, and nothing will be.
            if !job.reply.is_closed() {
                batch.ids.extend(job.step.ids());
                batch.jobs.push(job);
            }
            if batch.jobs.len() < MAX_BATCH && batch.ids.len() < FULL_BATCH {
                next = waiting.try_recv().ok();
            }
        }
        batch
    }

    fn reply(self, replies: impl IntoIterator<Item = Result<StoreReply, Error>>) {
        for (job, reply) in self.jobs.into_iter().zip(replies) {
            // A caller that has stopped waiting does not need the reply.
            let _ = job.reply.send(reply);
        }
    }

    fn fail(self, failure: &Failure) {
        self.reply(std::iter::repeat_with(|| Err(failure.to_error())));
    }
}

impl Worker {
    /// Decides the requests of the queue until it is closed.
    pub(crate) async fn run(mut self, mut jobs: mpsc::Receiver<Job>) {
        while let Some(first) = jobs.recv().await {
            let mut next = Some((Batch::of(Some(first), &mut jobs), None));
            while let Some((batch, begun)) = next.take().filter(|(it, _)| !it.jobs.is_empty()) {
                next = self.decide(batch, begun, &mut jobs).await;
            }
        }
    }

    /// Decides a batch, and replies to its callers. The exchange that commits it begins the next batch, if requests
    /// wait. Returns that batch.
    async fn decide(
        &mut self,
        batch: Batch,
        begun: Option<(Connection, Begun)>,
        waiting: &mut mpsc::Receiver<Job>,
    ) -> Option<(Batch, Option<(Connection, Begun)>)> {
        let (connection, (time, states)) = match begun {
            Some(begun) => begun,
            None => match self.begin(&batch).await {
                Ok(begun) => begun,
                Err(failure) => {
                    batch.fail(&failure);
                    return None;
                }
            },
        };
        let time = self.config.test_clock.as_ref().map_or(time, |clock| clock.now());
        let (replies, changed) = decided(&batch.jobs, &states, time);
        self.batches += 1;
        let next = Batch::of(None, waiting);
        // The first poll of each sends its statements, in this order.
        let (committed, begun) = join!(
            async {
                let committed = connection.commit(&changed).await;
                match &committed {
                    Ok(()) => batch.reply(replies),
                    Err(failure) => batch.fail(&failure.clone().of_commit()),
                }
                committed
            },
            async {
                if self.batches.is_multiple_of(BATCHES_PER_REMOVAL) {
                    connection.remove_expired(time);
                }
                let waits = !next.jobs.is_empty();
                if waits { connection.begin(&next.ids).await.map(Some) } else { Ok(None) }
            },
        );
        match (committed, begun) {
            (Ok(()), Ok(Some(begun))) => return Some((next, Some((connection, begun)))),
            (Ok(()), Ok(None)) => self.connection = Some(connection),
            // The connection is dropped, because its transaction may still be open.
            (Err(failure), _) | (_, Err(failure)) => next.fail(&failure),
        }
        None
    }

    /// Begins the transaction of a batch, over the open connection or a new one.
    async fn begin(&mut self, batch: &Batch) -> Result<(Connection, Begun), Failure> {
        let connection = match self.connection.take().filter(|it| !it.client.is_closed()) {
            Some(connection) => connection,
            None => Connection::open(&self.config).await?,
        };
        let begun = connection.begin(&batch.ids).await?;
        Ok((connection, begun))
    }
}

/// Executes the requests of a batch one after the other.
fn decided(batch: &[Job], states: &HashMap<StateId, Vec<u8>>, time: Timestamp) -> Decided {
    let mut changed: BTreeMap<StateId, StateChange> = BTreeMap::new();
    let replies = batch.iter().map(|job| {
        let (reply, changes) = job.step.run(time, |id| match changed.get(id) {
            Some(change) => Some(&*change.bytes),
            None => states.get(id).map(Vec::as_slice),
        })?;
        changed.extend(changes.into_iter().map(|change| (change.id, change)));
        Ok(reply)
    });
    (replies.collect(), changed)
}
