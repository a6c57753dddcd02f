//! The tasks that load rows, and the requests that wait for them.

use std::{
    hash::Hash,
    mem,
    pin::pin,
    sync::{Arc, MutexGuard},
    thread,
    time::Duration,
};

use tokio::time::Instant;

use super::{
    load::{LoadFailure, LoadFn, LoadProgress, Loaded, NewLoad, Settings},
    queue::Client,
    rows::{Cached, Rows},
    schedule::{Joined, LoadChanges, Schedule},
};
use crate::{
    runtime::{TimeLimit, runtime_with_timer, saturating_add},
    sync::Mutex,
    telemetry,
};

/// The loads of a lookup, and the cache that they fill.
///
/// A load runs in a task of its own until it ends or its deadline passes, also if no request waits for
/// it any more. A client that gives up and tries again then finds the row in the cache. A load that is
/// still waiting for its turn is dropped when no request waits for it.
pub(super) struct Loads<Q, T> {
    pub(super) rows: Rows<Q, T>,
    load: Arc<LoadFn<Q, T>>,
    deadline: Duration,
    schedule: Mutex<Schedule<Q, T>>,
}

/// The row of a key that is in the cache by now, or its load.
enum RowOrLoad<T> {
    Cached(Loaded<T>),
    Load(Joined<T>),
}

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
            schedule: Mutex::new(Schedule::new(settings)),
        }
    }

    /// Returns a future that waits for a load of `key`. The load is started, or joined, before this
    /// method returns.
    pub(super) fn load(
        self: &Arc<Self>,
        key: &Q,
        client: Client,
    ) -> impl Future<Output = Loaded<T>> + Send + use<Q, T> {
        let waiter = match self.start_or_join(key, client) {
            Ok(RowOrLoad::Cached(loaded)) => Err(loaded),
            Ok(RowOrLoad::Load(joined)) => {
                Ok(Waiter { loads: Arc::clone(self), joined: Some(joined) })
            }
            Err(failure) => Err(Err(failure)),
        };
        async {
            match waiter {
                Ok(waiter) => waiter.wait().await,
                Err(loaded) => loaded,
            }
        }
    }

    /// Loads `key` in the background. If that is not possible, the next request tries it again.
    pub(super) fn refresh(self: &Arc<Self>, key: &Q, client: Client) {
        let _ = self.start_or_join(key, client);
    }

    fn start_or_join(
        self: &Arc<Self>,
        key: &Q,
        client: Client,
    ) -> Result<RowOrLoad<T>, LoadFailure> {
        let mut schedule = self.lock();
        let now = Instant::now();
        if let Some(joined) = schedule.join(key, client, now) {
            return Ok(RowOrLoad::Load(joined));
        }
        // Another request may have loaded the row since the caller looked.
        match self.rows.get(key, now) {
            Cached::Row { row, is_due: false } => return Ok(RowOrLoad::Cached(Ok(Some(row)))),
            Cached::Unknown => return Ok(RowOrLoad::Cached(Ok(None))),
            _ => {}
        }
        let Some(runtime) = runtime_with_timer() else {
            telemetry::lookup_failed(LoadFailure::Interrupted.name(), None);
            return Err(LoadFailure::Interrupted);
        };
        let (joined, changes) = schedule.add(key.clone(), client, runtime, now);
        // A runtime that is shutting down drops the load at once, and the load then takes the lock.
        drop(schedule);
        self.apply(changes);
        Ok(RowOrLoad::Load(joined))
    }

    /// Starts and refuses loads.
    fn apply(self: &Arc<Self>, changes: LoadChanges<Q, T>) {
        if let Some(load) = changes.start {
            let runtime = load.runtime.clone();
            let task = RunningLoad { loads: Arc::clone(self), load, time: None };
            runtime.spawn(task.run());
        }
        changes.refused.into_iter().for_each(NewLoad::refuse);
    }

    /// Starts loads that wait, after the end of the one with this number that took `time`, if it came to its end.
    fn release(self: &Arc<Self>, number: u64, time: Option<Duration>) {
        // A runtime that is shutting down drops a load when it is started, and this method is then called
        // inside of itself. The outer call goes on with the next load.
        let Some(_starting) = self.begin_to_start(number, time) else { return };
        loop {
            let mut schedule = self.lock();
            let changes = schedule.next(Instant::now());
            let is_last = changes.start.is_none();
            schedule.is_starting = !is_last;
            drop(schedule);
            self.apply(changes);
            if is_last {
                return;
            }
        }
    }

    /// Counts the end of a load. Returns `None` if loads that wait are already being started.
    fn begin_to_start(&self, number: u64, time: Option<Duration>) -> Option<Starting<'_, Q, T>> {
        let mut schedule = self.lock();
        schedule.ran(number, time);
        let is_starting = mem::replace(&mut schedule.is_starting, true);
        drop(schedule);
        (!is_starting).then_some(Starting(self))
    }

    pub(super) fn load_fn(&self) -> Arc<LoadFn<Q, T>> {
        Arc::clone(&self.load)
    }

    /// Removes the row of a key. The result of a load that is running is not stored.
    pub(super) fn forget(&self, key: &Q) {
        let mut schedule = self.lock();
        schedule.forget(key);
        self.rows.remove(key);
    }
}

impl<Q, T> Loads<Q, T> {
    fn lock(&self) -> MutexGuard<'_, Schedule<Q, T>> {
        self.schedule.lock()
    }
}

/// The start of loads that wait. If the code of the application panics meanwhile, such as that which
/// receives events, the next load that ends starts them.
struct Starting<'l, Q, T>(&'l Loads<Q, T>);

impl<Q, T> Drop for Starting<'_, Q, T> {
    fn drop(&mut self) {
        if thread::panicking() {
            self.0.lock().is_starting = false;
        }
    }
}

/// A request that waits for a load. If it is dropped, and no other one waits for the load, the load is
/// not started.
struct Waiter<Q, T>
where
    Q: Hash + Eq + Clone + Send + Sync + 'static,
    T: Send + Sync + 'static,
{
    loads: Arc<Loads<Q, T>>,
    joined: Option<Joined<T>>,
}

impl<Q, T> Waiter<Q, T>
where
    Q: Hash + Eq + Clone + Send + Sync + 'static,
    T: Send + Sync + 'static,
{
    async fn wait(mut self) -> Loaded<T> {
        let deadline = self.loads.deadline;
        let Some(Joined { progress, .. }) = &mut self.joined else {
            return Err(LoadFailure::Interrupted);
        };
        let start = async { progress.wait_for(|it| !it.is_waiting()).await.is_ok() };
        if TimeLimit::after(deadline).wait(pin!(start)).await.is_err() {
            if let Some(load) = self.leave() {
                load.refuse();
            }
            return Err(LoadFailure::Overloaded);
        }
        // A load ends at its own deadline, which began no later than the deadline of this wait. The
        // deadline here ends the wait if the runtime of the load no longer runs tasks.
        let end = async {
            let progress = progress.wait_for(|it| it.result().is_some()).await.ok()?;
            progress.result().cloned()
        };
        match TimeLimit::after(deadline.saturating_mul(2)).wait(pin!(end)).await {
            Ok(loaded) => loaded.unwrap_or(Err(LoadFailure::Interrupted)),
            Err(_) => Err(LoadFailure::TimedOut),
        }
    }

    /// Stops to wait. Returns the load if it was removed from the queue.
    fn leave(&mut self) -> Option<NewLoad<Q, T>> {
        let joined = self.joined.take()?;
        // A load that has started is not touched, and needs no lock.
        let is_waiting = joined.progress.borrow().is_waiting();
        if is_waiting { self.loads.lock().leave(joined) } else { None }
    }
}

impl<Q, T> Drop for Waiter<Q, T>
where
    Q: Hash + Eq + Clone + Send + Sync + 'static,
    T: Send + Sync + 'static,
{
    fn drop(&mut self) {
        drop(self.leave());
    }
}

/// A running load. If it is dropped without a result, because it panicked or its runtime ended, the load
/// ends with that failure.
struct RunningLoad<Q, T>
where
    Q: Hash + Eq + Clone + Send + Sync + 'static,
    T: Send + Sync + 'static,
{
    loads: Arc<Loads<Q, T>>,
    load: NewLoad<Q, T>,
    /// The time that the load took, after its end.
    time: Option<Duration>,
}

impl<Q, T> RunningLoad<Q, T>
where
    Q: Hash + Eq + Clone + Send + Sync + 'static,
    T: Send + Sync + 'static,
{
    async fn run(mut self) {
        let (loads, start) = (Arc::clone(&self.loads), Instant::now());
        let limit = TimeLimit::at(saturating_add(self.load.created, loads.deadline));
        let load = async { (loads.load)(self.load.key.clone()).await };
        let loaded = match limit.wait(pin!(load)).await {
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
        telemetry::row_loaded(self.load.created.elapsed());
        self.time = Some(start.elapsed());
        self.end(loaded);
    }

    /// Stores the result, unless the key was forgotten meanwhile, and passes it to the requests that
    /// wait.
    fn end(&self, loaded: Loaded<T>) {
        let mut schedule = self.loads.lock();
        if schedule.end(&self.load.key, self.load.number) {
            let (key, now) = (self.load.key.clone(), Instant::now());
            match &loaded {
                Ok(row) => self.loads.rows.insert(key, row.clone(), now),
                Err(_) => self.loads.rows.insert_failure(key, now),
            }
        }
        drop(schedule);
        self.load.progress.send_replace(LoadProgress::Ended(loaded));
    }
}

impl<Q, T> Drop for RunningLoad<Q, T>
where
    Q: Hash + Eq + Clone + Send + Sync + 'static,
    T: Send + Sync + 'static,
{
    fn drop(&mut self) {
        if self.time.is_none() {
            let failure = match thread::panicking() {
                true => LoadFailure::Panicked,
                false => LoadFailure::Interrupted,
            };
            telemetry::lookup_failed(failure.name(), None);
            self.end(Err(failure));
        }
        self.loads.release(self.load.number, self.time);
    }
}
