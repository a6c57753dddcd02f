//! What many wait for, done by one task at a time.

use std::{
    fmt, io,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use redis::RedisError;
use tokio::{
    runtime::Handle,
    sync::watch,
    task::{AbortHandle, JoinSet},
    time::Instant,
};

use crate::{random, store::redis::error::Failure};

type Outcome = Result<(), Failure>;

/// Work that goes on when those who wait for it give up, so that a request with a short deadline
/// does not begin from zero what the one before it began. Whoever comes meanwhile waits for the same
/// work; whoever comes soon after a failure hears of that failure. The work ends with this.
pub(in crate::store::redis) struct SingleFlight {
    state: Arc<Mutex<State>>,
    /// For so long after a success it is not done again.
    rest: Duration,
}

#[derive(Default)]
struct State {
    running: Option<Running>,
    last: Option<Outcome>,
    /// Not again before.
    due: Option<Instant>,
    failures: u32,
}

struct Running {
    outcome: watch::Receiver<Option<Outcome>>,
    task: AbortHandle,
}

/// Pauses after failures double from the first to the longest. The longest is shorter than a
/// breaker usually leaves a store alone, so that each of its probes finds a fresh attempt.
const FIRST_PAUSE: Duration = Duration::from_millis(10);
const LONGEST_PAUSE: Duration = Duration::from_millis(250);
/// A failure so long after the last one is a first one.
const FORGOTTEN: Duration = Duration::from_secs(1);

impl SingleFlight {
    pub(in crate::store::redis) fn new(rest: Duration) -> Self {
        Self { state: Arc::default(), rest }
    }

    /// What comes of the work that is going on, or of this if none is.
    pub(in crate::store::redis) async fn join<F>(&self, work: impl FnOnce() -> F) -> Outcome
    where
        F: Future<Output = Outcome> + Send + 'static,
    {
        let mut outcome = self.begin(work)?;
        match outcome.wait_for(Option::is_some).await {
            Ok(outcome) => outcome.clone().unwrap_or(Ok(())),
            Err(_) => Err(no_runtime()),
        }
    }

    /// Sees to it that the work is done, without waiting for it.
    pub(in crate::store::redis) fn begin<F>(
        &self,
        work: impl FnOnce() -> F,
    ) -> Result<watch::Receiver<Option<Outcome>>, Failure>
    where
        F: Future<Output = Outcome> + Send + 'static,
    {
        let mut state = lock(&self.state);
        // A task that ended with its runtime has left nobody who could say so.
        if let Some(running) = &state.running
            && running.outcome.has_changed().is_ok()
        {
            return Ok(running.outcome.clone());
        }
        if let Some(last) = state.last.clone()
            && state.due.is_some_and(|due| Instant::now() < due)
        {
            return last.map(|()| watch::channel(Some(Ok(()))).1);
        }
        let Ok(runtime) = Handle::try_current() else { return Err(no_runtime()) };
        let (sender, outcome) = watch::channel(None);
        let (shared, rest, work) = (Arc::clone(&self.state), self.rest, work());
        let task = runtime.spawn(async move {
            let outcome = work.await;
            let mut state = lock(&shared);
            state.running = None;
            state.note(outcome.clone(), rest);
            drop(state);
            sender.send_replace(Some(outcome));
        });
        state.running = Some(Running { outcome: outcome.clone(), task: task.abort_handle() });
        Ok(outcome)
    }

    /// What had come of it is of no use: as if it had failed.
    pub(in crate::store::redis) fn failed(&self, failure: Failure) {
        lock(&self.state).note(Err(failure), self.rest);
    }

    pub(in crate::store::redis) fn has_failed(&self) -> bool {
        matches!(lock(&self.state).last, Some(Err(_)))
    }
}

impl State {
    fn note(&mut self, outcome: Outcome, rest: Duration) {
        let now = Instant::now();
        let pause = if outcome.is_ok() {
            rest
        } else {
            if self.due.is_some_and(|due| now > due + FORGOTTEN) {
                self.failures = 0;
            }
            self.failures = self.failures.saturating_add(1);
            let longest = FIRST_PAUSE * (1 << (self.failures - 1).min(10));
            let longest = longest.min(LONGEST_PAUSE);
            // Many instances that lost the same server do not all come back at once.
            longest / 2 + longest.mul_f64((random::number() % 1_000) as f64 / 2_000.0)
        };
        self.last = Some(outcome);
        self.due = Some(now + pause);
    }
}

impl Drop for SingleFlight {
    fn drop(&mut self) {
        if let Some(running) = lock(&self.state).running.take() {
            running.task.abort();
        }
    }
}

/// The first that succeeds; the others are then given up.
pub(in crate::store::redis) async fn first_good<T: 'static>(
    mut attempts: JoinSet<Result<T, RedisError>>,
) -> Result<T, RedisError> {
    let mut last: Option<RedisError> = None;
    while let Some(ended) = attempts.join_next().await {
        match ended {
            Ok(Ok(good)) => return Ok(good),
            // What a server says is of more use than that another cannot be reached.
            Ok(Err(error)) if error.is_io_error() && last.is_some() => {}
            Ok(Err(error)) => last = Some(error),
            Err(_) => {}
        }
    }
    Err(last.unwrap_or_else(|| interrupted().into()))
}

fn lock(state: &Mutex<State>) -> MutexGuard<'_, State> {
    state.lock().unwrap_or_else(PoisonError::into_inner)
}

fn no_runtime() -> Failure {
    Failure::Unreachable(interrupted().into())
}

fn interrupted() -> io::Error {
    io::Error::new(io::ErrorKind::Interrupted, "the runtime ended before this was done")
}

impl fmt::Debug for SingleFlight {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SingleFlight").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering::SeqCst};

    use tokio::time::{advance, sleep, timeout};

    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    /// Work that takes a second, and counts how often it was begun and done.
    #[derive(Default)]
    struct Counted {
        begun: AtomicU32,
        done: AtomicU32,
    }

    impl Counted {
        async fn work(self: Arc<Self>, outcome: Outcome) -> Outcome {
            self.begun.fetch_add(1, SeqCst);
            sleep(SECOND).await;
            self.done.fetch_add(1, SeqCst);
            outcome
        }
    }

    #[tokio::test(start_paused = true)]
    async fn it_goes_on_when_those_who_wait_give_up() {
        let (effort, counted) = (SingleFlight::new(Duration::ZERO), Arc::new(Counted::default()));
        let join = || effort.join(|| Arc::clone(&counted).work(Ok(())));
        for _ in 0..3 {
            assert!(timeout(SECOND / 4, join()).await.is_err());
        }
        join().await.expect("it works");
        assert_eq!((counted.begun.load(SeqCst), counted.done.load(SeqCst)), (1, 1));
        join().await.expect("it works again");
        assert_eq!(counted.done.load(SeqCst), 2);
    }

    #[tokio::test(start_paused = true)]
    async fn it_ends_with_its_owner() {
        let (effort, counted) = (SingleFlight::new(Duration::ZERO), Arc::new(Counted::default()));
        let _ = timeout(SECOND / 4, effort.join(|| Arc::clone(&counted).work(Ok(())))).await;
        drop(effort);
        sleep(2 * SECOND).await;
        assert_eq!((counted.begun.load(SeqCst), counted.done.load(SeqCst)), (1, 0));
        assert_eq!(Arc::strong_count(&counted), 1);
    }

    #[tokio::test(start_paused = true)]
    async fn failures_are_remembered_for_a_pause_that_grows() {
        let effort = SingleFlight::new(Duration::ZERO);
        let mut longest = Duration::ZERO;
        for number in 0..8 {
            let fails = || async { Err(Failure::NotOurs) };
            assert!(effort.join(fails).await.is_err());
            let failed = Instant::now();
            while effort.join(|| async { Ok(()) }).await.is_err() {
                advance(Duration::from_millis(1)).await;
            }
            let pause = failed.elapsed();
            let most = (FIRST_PAUSE * (1 << number)).min(LONGEST_PAUSE);
            assert!(pause >= most / 2 && pause <= most + Duration::from_millis(1), "{pause:?}");
            longest = longest.max(pause);
        }
        assert!(longest > LONGEST_PAUSE / 2);
        assert!(!effort.has_failed());
        // After a while a failure is a first one again.
        advance(2 * SECOND).await;
        effort.failed(Failure::NotOurs);
        assert!(effort.has_failed());
        advance(FIRST_PAUSE).await;
        effort.join(|| async { Ok(()) }).await.expect("it works");
    }

    #[tokio::test(start_paused = true)]
    async fn a_success_is_rested_upon() {
        let (effort, counted) = (SingleFlight::new(SECOND), Arc::new(Counted::default()));
        for _ in 0..3 {
            effort.join(|| Arc::clone(&counted).work(Ok(()))).await.expect("it works");
        }
        assert_eq!(counted.done.load(SeqCst), 1);
        advance(SECOND + FIRST_PAUSE).await;
        effort.join(|| Arc::clone(&counted).work(Ok(()))).await.expect("it works");
        assert_eq!(counted.done.load(SeqCst), 2);
    }
}
