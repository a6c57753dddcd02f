//! The store: it hands each request to the worker of its key.

use std::{sync::Arc, time::Instant};

use plimsoll::{
    Error,
    store::{Answer, Request, Source, Step, Store, Traits},
};
use tokio::sync::{mpsc, oneshot};

use crate::{
    config::PostgresConfig,
    connection::Connection,
    error::Failure,
    worker::{Job, Worker},
};

/// A [`Store`] whose units are in PostgreSQL. All processes with the same table and
/// [secret](PostgresConfig::secret) share them.
///
/// Its connections are tasks of the runtime in which it was created. They end when its last clone is
/// dropped.
#[derive(Debug, Clone)]
pub struct PostgresStore {
    /// The queue of each worker. A worker ends when its queue is closed.
    queues: Arc<[mpsc::Sender<Job>]>,
    config: Arc<PostgresConfig>,
}

/// The most requests that wait for a worker.
const MAX_QUEUE: usize = 1_024;

impl PostgresStore {
    /// Connects to the database, and creates the table if it is not there.
    ///
    /// # Errors
    ///
    /// Returns the error of the first connection. It is of the kind [`Invalid`](plimsoll::error::ErrorKind::Invalid)
    /// if the name of the table is.
    ///
    /// # Panics
    ///
    /// Panics outside of a tokio runtime.
    pub async fn connect(config: PostgresConfig) -> Result<Self, Error> {
        config.validate()?;
        let first = Connection::open(&config).await.map_err(|failure| failure.to_error())?;
        Ok(Self::start(config, Some(first)))
    }

    /// Creates a store that connects when it is first used, so that a service starts without its
    /// database.
    ///
    /// # Errors
    ///
    /// An error of the kind [`Invalid`](plimsoll::error::ErrorKind::Invalid) if the name of the table is.
    ///
    /// # Panics
    ///
    /// Panics outside of a tokio runtime.
    pub fn lazy(config: PostgresConfig) -> Result<Self, Error> {
        config.validate()?;
        Ok(Self::start(config, None))
    }

    fn start(config: PostgresConfig, mut first: Option<Connection>) -> Self {
        let config = Arc::new(config);
        let queues = (0..config.connections).map(|_| {
            let (queue, jobs) = mpsc::channel(MAX_QUEUE);
            let worker =
                Worker { config: Arc::clone(&config), connection: first.take(), batches: 0 };
            tokio::spawn(worker.run(jobs));
            queue
        });
        Self { queues: queues.collect(), config }
    }
}

impl Store for PostgresStore {
    fn call(&self, request: Request<'_>, _: Option<Instant>) -> Answer {
        let step = Step::new(request, Source::Shared, self.config.secret);
        // A name is a hash: its last byte is as good as a random number.
        let number = step.ids().first().map_or(0, |id| usize::from(id[15]));
        let (reply, answer) = oneshot::channel();
        if self.queues[number % self.queues.len()].try_send(Job { step, reply }).is_err() {
            let message = "too many requests wait for PostgreSQL, or its runtime has ended";
            return Answer::ready(Err(Failure::new(message).to_error()));
        }
        Answer::pending(async move {
            answer.await.unwrap_or_else(|_| {
                let failure = Failure::new("the runtime of the store has ended");
                Err(failure.of_commit().to_error())
            })
        })
    }

    fn traits(&self) -> Traits {
        let mut traits = Traits::default();
        traits.counts_leases = true;
        traits.marks_debts = true;
        traits
    }

    fn description(&self) -> String {
        format!("postgres (table {})", self.config.table)
    }
}
