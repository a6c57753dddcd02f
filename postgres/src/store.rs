//! The store: it hands each request to the worker of its key.

use std::{fmt, sync::Arc, time::Instant};

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
#[derive(Clone)]
pub struct PostgresStore(Arc<Shared>);

struct Shared {
    /// The queue of each worker. A worker ends when its queue is closed.
    queues: Vec<mpsc::Sender<Job>>,
    secret: [u64; 2],
    table: String,
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
        let (secret, table, config) = (config.secret, config.table.clone(), Arc::new(config));
        let queues = (0..config.connections).map(|_| {
            let (queue, jobs) = mpsc::channel(MAX_QUEUE);
            tokio::spawn(Worker::new(Arc::clone(&config), first.take()).run(jobs));
            queue
        });
        Self(Arc::new(Shared { queues: queues.collect(), secret, table }))
    }
}

impl Store for PostgresStore {
    fn call(&self, request: Request<'_>, deadline: Option<Instant>) -> Answer {
        let Shared { queues, secret, .. } = &*self.0;
        let step = Step::new(request, Source::Shared, *secret);
        // A name is a hash: its last byte is as good as a random number.
        let number = step.ids().first().map_or(0, |id| usize::from(id[15]));
        let (reply, answer) = oneshot::channel();
        let job = Job { step, deadline: deadline.map(Into::into), reply };
        if let Err(rejected) = queues[number % queues.len()].try_send(job) {
            let message = match rejected {
                mpsc::error::TrySendError::Full(_) => "too many requests wait for PostgreSQL",
                mpsc::error::TrySendError::Closed(_) => "the runtime of the store has ended",
            };
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
        format!("postgres (table {})", self.0.table)
    }
}

impl fmt::Debug for PostgresStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PostgresStore").field("table", &self.0.table).finish_non_exhaustive()
    }
}
