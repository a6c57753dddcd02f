//! The loads of rows, at most one for each key at a time.

use std::{
    collections::HashMap,
    error::Error as StdError,
    hash::Hash,
    pin::{Pin, pin},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    thread,
    time::Duration,
};

use tokio::{
    sync::{Semaphore, watch},
    time::Instant,
};

use super::{
    rows::{Cached, Rows},
    settings::Settings,
};
use crate::{
    store::scheduling::{TimeLimit, runtime_with_timer},
    telemetry,
};

/// The number of keys that are loaded, or wait for a load, at once. Further ones fail at once.
const MAX_LOADING: usize = 1_024;

/// Returns the future of a load: the row of a key, `None` if there is none, or an error.
pub(super) type LoadFn<Q, T> = dyn Fn(Q) -> LoadFuture<T> + Send + Sync;
pub(super) type LoadFuture<T> =
    Pin<Box<dyn Future<Output = Result<Option<T>, Box<dyn StdError + Send + Sync>>> + Send>>;

/// The result of a load. Each request that waits for it gets a clone.
pub(super) type Loaded<T> = Result<Option<Arc<T>>, LoadFailure>;

/// The reason why a row could not be loaded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum LoadFailure {
    /// The load returned an error.
    Error,
    /// The load did not end by the deadline.
    TimedOut,
    /// The load panicked.
    Panicked,
    /// The runtime of the load has ended, or there is no tokio runtime with timers.
    Interrupted,
    /// Too many keys are being loaded.
    Overloaded,
}

impl LoadFailure {
    /// Returns the name of the failure in events and metrics.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Error => "error",
            Self::TimedOut => "timed_out",
            Self::Panicked => "panicked",
            Self::Interrupted => "interrupted",
            Self::Overloaded => "overloaded",
        }
    }
}

/// The loads of a lookup, and the cache that they fill.
///
/// A load runs in a task of its own until it ends or its deadline passes, also if no request waits for
/// it any more. A client that gives up and tries again then finds the row in the cache.
pub(super) struct Loads<Q, T> {
    pub(super) rows: Rows<Q, T>,
    load: Arc<LoadFn<Q, T>>,
    deadline: Duration,
    /// Permits for loads that run.
    permits: Semaphore,
    running: Mutex<HashMap<Q, RunningLoad<T>>>,
    next_number: AtomicU64,
}

struct RunningLoad<T> {
    number: u64,
    started: Instant,
    result: LoadReceiver<T>,
}

/// Receives the result of a load when it ends.
pub(super) type LoadReceiver<T> = watch::Receiver<Option<Loaded<T>>>;

impl<Q, T> Loads<Q, T>
where
    Q: Hash + Eq + Clone + Send + Sync + 'static,
    T: Send + Sync + 'static,
{
    pub(super) fn new(settings: &Settings, load: Arc<LoadFn<Q, T>>) -> Self {
        Self {
            rows: Rows::new(settings),
            load,
            deadline: settings.deadline,
            permits: Semaphore::new(settings.max_loads),
            running: Mutex::default(),
            next_number: AtomicU64::new(0),
        }
    }

    /// Starts a load of `key`, or joins the one that is running. The receiver waits for its result.
    ///
    /// # Errors
    ///
    /// Returns the reason if no load can be started.
    pub(super) fn start_or_join(self: &Arc<Self>, key: &Q) -> Result<LoadReceiver<T>, LoadFailure> {
        let mut running = self.lock();
        if let Some(load) = running.get(key)
            // If its runtime no longer runs tasks, a load does not end at its deadline. A new load then
            // replaces it, and the result of the old load is not stored.
            && load.started.elapsed() < self.deadline.max(Duration::from_millis(50)).saturating_mul(4)
        {
            return Ok(load.result.clone());
        }
        // Another request may have loaded the row since the caller looked.
        let now = Instant::now();
        match self.rows.get(key, now) {
            Cached::Row { row, is_due: false } => return Ok(ended(Ok(Some(row)))),
            Cached::Unknown => return Ok(ended(Ok(None))),
            _ => {}
        }
        if running.len() >= MAX_LOADING {
            return Err(LoadFailure::Overloaded);
        }
        let runtime = runtime_with_timer().ok_or(LoadFailure::Interrupted)?;
        let (sender, result) = watch::channel(None);
        let number = self.next_number.fetch_add(1, Relaxed);
        let load = RunningLoad { number, started: now, result: result.clone() };
        running.insert(key.clone(), load);
        // A runtime that is shutting down drops the load at once, and the load then takes the lock.
        drop(running);
        let guard = LoadGuard { loads: Arc::clone(self), key: key.clone(), number, sender };
        runtime.spawn(guard.run());
        Ok(result)
    }

    /// Waits for the result of a load.
    pub(super) async fn wait(self: Arc<Self>, mut result: LoadReceiver<T>) -> Loaded<T> {
        // The load ends at its own deadline, which began no later than the deadline of this wait. The
        // deadline here ends the wait if the runtime of the load no longer runs tasks.
        let limit = TimeLimit::after(self.deadline.saturating_mul(2));
        let ended = async {
            let result = result.wait_for(Option::is_some).await.ok()?;
            result.clone()
        };
        match limit.wait(pin!(ended)).await {
            Ok(loaded) => loaded.unwrap_or(Err(LoadFailure::Interrupted)),
            Err(_) => Err(LoadFailure::TimedOut),
        }
    }

    pub(super) fn load_fn(&self) -> Arc<LoadFn<Q, T>> {
        Arc::clone(&self.load)
    }

    /// Removes the row of a key. The result of a load that is running is not stored.
    pub(super) fn forget(&self, key: &Q) {
        let mut running = self.lock();
        running.remove(key);
        self.rows.remove(key);
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Q, RunningLoad<T>>> {
        self.running.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Returns a receiver of a result that is known.
fn ended<T>(loaded: Loaded<T>) -> LoadReceiver<T> {
    watch::channel(Some(loaded)).1
}

/// A running load. If it is dropped without a result, because it panicked or its runtime ended, the load
/// ends with that failure.
struct LoadGuard<Q, T>
where
    Q: Hash + Eq + Clone + Send + Sync + 'static,
    T: Send + Sync + 'static,
{
    loads: Arc<Loads<Q, T>>,
    key: Q,
    number: u64,
    sender: watch::Sender<Option<Loaded<T>>>,
}

impl<Q, T> LoadGuard<Q, T>
where
    Q: Hash + Eq + Clone + Send + Sync + 'static,
    T: Send + Sync + 'static,
{
    async fn run(self) {
        let loads = &self.loads;
        let start = Instant::now();
        let load = async {
            let _permit = loads.permits.acquire().await;
            (loads.load)(self.key.clone()).await
        };
        let loaded = match TimeLimit::after(loads.deadline).wait(pin!(load)).await {
            Ok(Ok(row)) => Ok(row.map(Arc::new)),
            Ok(Err(error)) => {
                telemetry::lookup_failed(LoadFailure::Error.name(), Some(&error));
                Err(LoadFailure::Error)
            }
            Err(_) => {
                telemetry::lookup_failed(LoadFailure::TimedOut.name(), None);
                Err(LoadFailure::TimedOut)
            }
        };
        telemetry::row_loaded(start.elapsed());
        self.end(loaded);
    }

    /// Stores the result, unless the key was forgotten meanwhile, and passes it to the requests that
    /// wait.
    fn end(&self, loaded: Loaded<T>) {
        let mut running = self.loads.lock();
        if running.get(&self.key).is_some_and(|load| load.number == self.number) {
            let (key, now) = (self.key.clone(), Instant::now());
            match &loaded {
                Ok(row) => self.loads.rows.insert(key, row.clone(), now),
                Err(_) => self.loads.rows.insert_failure(key, now),
            }
            running.remove(&self.key);
        }
        drop(running);
        self.sender.send_replace(Some(loaded));
    }
}

impl<Q, T> Drop for LoadGuard<Q, T>
where
    Q: Hash + Eq + Clone + Send + Sync + 'static,
    T: Send + Sync + 'static,
{
    fn drop(&mut self) {
        if self.sender.borrow().is_none() {
            let failure = match thread::panicking() {
                true => LoadFailure::Panicked,
                false => LoadFailure::Interrupted,
            };
            telemetry::lookup_failed(failure.name(), None);
            self.end(Err(failure));
        }
    }
}
