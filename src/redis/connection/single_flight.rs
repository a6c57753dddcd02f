//! Operations that run at most once at a time.

use std::{
    fmt, io,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use tokio::{
    runtime::Handle,
    sync::watch,
    task::{AbortHandle, JoinHandle},
    time::Instant,
};

use crate::{random, redis::error::Failure, runtime::runtime_with_timer};

/// An operation that runs at most once at a time. Concurrent callers share its result.
///
/// The operation runs in a task, so it continues when its callers stop waiting. Requests with short
/// deadlines can therefore share an operation that takes longer than each of them. If its runtime
/// ends or stops to run tasks, the operation starts again in another runtime. After a failure,
/// calls return that failure until a [`Backoff`] is over. Dropping the `SingleFlight` aborts the
/// operation.
pub(in crate::redis) struct SingleFlight {
    state: Arc<Mutex<FlightState>>,
    /// The time for which a success is also the result of later calls.
    min_interval: Duration,
}

#[derive(Default)]
struct FlightState {
    running: Option<RunningOperation>,
    last: Option<Result<(), Failure>>,
    backoff: Backoff,
}

struct RunningOperation {
    result: ResultReceiver,
    task: AbortHandle,
    runtime: Handle,
    /// A task that shows whether the runtime runs its tasks, and the time at which it was spawned.
    heartbeat: Option<(JoinHandle<()>, Instant)>,
}

/// The time within which a runtime must run a task. Otherwise an operation in it is started again in
/// the runtime of the next caller.
const MAX_HEARTBEAT_DELAY: Duration = Duration::from_secs(1);

/// Receives the result of the operation when it ends.
type ResultReceiver = watch::Receiver<Option<Result<(), Failure>>>;

impl SingleFlight {
    /// Creates a `SingleFlight` that runs the operation again at any time after a success.
    pub(in crate::redis) fn new() -> Self {
        Self::with_min_interval(Duration::ZERO)
    }

    /// Creates a `SingleFlight` that runs the operation no sooner than `min_interval` after a
    /// success.
    pub(in crate::redis) fn with_min_interval(min_interval: Duration) -> Self {
        Self { state: Arc::default(), min_interval }
    }

    /// Waits for the operation that is running, or runs `operation` if none is.
    ///
    /// This wait has no timeout, so the operation must have one.
    ///
    /// # Errors
    ///
    /// Returns an error if the operation fails, or has failed and its backoff is not over, or if the runtime
    /// ends.
    pub(in crate::redis) async fn run<F>(
        &self,
        operation: impl FnOnce() -> F,
    ) -> Result<(), Failure>
    where
        F: Future<Output = Result<(), Failure>> + Send + 'static,
    {
        let mut result = self.start_or_join(operation)?;
        match result.wait_for(Option::is_some).await {
            Ok(result) => result.clone().unwrap_or(Ok(())),
            Err(_) => Err(interrupted()),
        }
    }

    /// Starts `operation` unless one is running, and does not wait for it.
    ///
    /// A failure is ignored here, and returned by later calls.
    pub(in crate::redis) fn start<F>(&self, operation: impl FnOnce() -> F)
    where
        F: Future<Output = Result<(), Failure>> + Send + 'static,
    {
        let _ = self.start_or_join(operation);
    }

    /// Turns the last success into a failure, because its product has proved useless.
    pub(super) fn fail(&self, failure: Failure) {
        lock(&self.state).complete(Err(failure), self.min_interval);
    }

    /// Returns whether the last operation has failed.
    pub(super) fn has_failed(&self) -> bool {
        matches!(lock(&self.state).last, Some(Err(_)))
    }

    fn start_or_join<F>(&self, operation: impl FnOnce() -> F) -> Result<ResultReceiver, Failure>
    where
        F: Future<Output = Result<(), Failure>> + Send + 'static,
    {
        let mut state = lock(&self.state);
        // If the task ended with its runtime, the channel is closed and the operation does not run.
        if let Some(running) = &mut state.running
            && running.result.has_changed().is_ok()
        {
            if !running.is_abandoned() {
                return Ok(running.result.clone());
            }
            running.task.abort();
        }
        if let Some(last) = &state.last
            && !state.backoff.is_over(Instant::now())
        {
            return last.clone().map(|()| watch::channel(Some(Ok(()))).1);
        }
        let Some(runtime) = runtime_with_timer() else { return Err(Failure::NoRuntime) };
        let (sender, result) = watch::channel(None);
        let (shared, min_interval) = (Arc::clone(&self.state), self.min_interval);
        let operation = operation();
        let task = runtime.spawn(async move {
            let result = operation.await;
            let mut state = lock(&shared);
            state.running = None;
            state.complete(result.clone(), min_interval);
            drop(state);
            sender.send_replace(Some(result));
        });
        state.running = Some(RunningOperation {
            result: result.clone(),
            task: task.abort_handle(),
            runtime,
            heartbeat: None,
        });
        Ok(result)
    }
}

impl RunningOperation {
    /// Returns whether the caller is in another runtime than the operation, and that one runs no
    /// tasks, such as a current-thread runtime outside of `block_on`.
    fn is_abandoned(&mut self) -> bool {
        match runtime_with_timer() {
            Some(runtime) if runtime.id() != self.runtime.id() => {}
            _ => return false,
        }
        match &self.heartbeat {
            Some((task, start)) if !task.is_finished() => start.elapsed() >= MAX_HEARTBEAT_DELAY,
            _ => {
                self.heartbeat = Some((self.runtime.spawn(async {}), Instant::now()));
                false
            }
        }
    }
}

impl FlightState {
    fn complete(&mut self, result: Result<(), Failure>, min_interval: Duration) {
        match &result {
            Ok(()) => self.backoff.pause(Instant::now(), min_interval),
            Err(_) => self.backoff.fail(Instant::now()),
        }
        self.last = Some(result);
    }
}

impl Drop for SingleFlight {
    fn drop(&mut self) {
        if let Some(running) = lock(&self.state).running.take() {
            running.task.abort();
        }
    }
}

fn lock(state: &Mutex<FlightState>) -> MutexGuard<'_, FlightState> {
    state.lock().unwrap_or_else(PoisonError::into_inner)
}

fn interrupted() -> Failure {
    let message = "the runtime ended before the operation did";
    Failure::Unreachable(io::Error::new(io::ErrorKind::Interrupted, message).into())
}

impl fmt::Debug for SingleFlight {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SingleFlight").finish_non_exhaustive()
    }
}

/// The first delay. Each failure doubles it, up to [`MAX_DELAY`].
const FIRST_DELAY: Duration = Duration::from_millis(10);
/// The longest delay. It is shorter than the breaker's interval between probes, so each probe finds
/// a new attempt to connect.
const MAX_DELAY: Duration = Duration::from_millis(250);

/// The time after the end of a delay from which on the next failure starts again with
/// [`FIRST_DELAY`].
const FORGET_AFTER: Duration = Duration::from_secs(1);

/// An exponential backoff with jitter.
#[derive(Debug, Default)]
pub(super) struct Backoff {
    failures: u32,
    retry_at: Option<Instant>,
}

impl Backoff {
    /// Returns whether the operation may run again.
    pub(super) fn is_over(&self, now: Instant) -> bool {
        self.retry_at.is_none_or(|retry_at| now >= retry_at)
    }

    /// Starts a fixed delay, after a success.
    pub(super) fn pause(&mut self, now: Instant, pause: Duration) {
        self.retry_at = Some(now + pause);
    }

    /// Starts the next delay, after a failure.
    ///
    /// A success does not reset the delay. Otherwise a server whose connections open but fail at
    /// the first request would get a new connection for each request.
    pub(super) fn fail(&mut self, now: Instant) {
        if self.retry_at.is_some_and(|retry_at| now > retry_at + FORGET_AFTER) {
            self.failures = 0;
        }
        let delay = FIRST_DELAY * (1 << self.failures.min(10));
        self.failures = self.failures.saturating_add(1);
        self.retry_at = Some(now + jittered(delay.min(MAX_DELAY)));
    }
}

/// Returns a random time between half of `delay` and all of it, so that the instances that lost the
/// same server do not all reconnect at once.
fn jittered(delay: Duration) -> Duration {
    let part = (random::number() % 1_000) as f64 / 1_000.0;
    delay / 2 + (delay / 2).mul_f64(part)
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering::SeqCst};

    use tokio::time::{advance, sleep, timeout};

    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    /// An operation that takes a second, and counts how often it was started and completed.
    #[derive(Default)]
    struct Counted {
        started: AtomicU32,
        completed: AtomicU32,
    }

    impl Counted {
        async fn run(self: Arc<Self>) -> Result<(), Failure> {
            self.started.fetch_add(1, SeqCst);
            sleep(SECOND).await;
            self.completed.fetch_add(1, SeqCst);
            Ok(())
        }

        fn counts(&self) -> (u32, u32) {
            (self.started.load(SeqCst), self.completed.load(SeqCst))
        }
    }

    #[tokio::test(start_paused = true)]
    async fn the_operation_continues_when_callers_stop_waiting() {
        let (flight, counted) = (SingleFlight::new(), Arc::new(Counted::default()));
        let run = || flight.run(|| Arc::clone(&counted).run());
        for _ in 0..3 {
            assert!(timeout(SECOND / 4, run()).await.is_err());
        }
        run().await.expect("it succeeds");
        assert_eq!(counted.counts(), (1, 1));
        run().await.expect("it succeeds again");
        assert_eq!(counted.counts(), (2, 2));
    }

    #[tokio::test(start_paused = true)]
    async fn dropping_aborts_the_operation() {
        let (flight, counted) = (SingleFlight::new(), Arc::new(Counted::default()));
        flight.start(|| Arc::clone(&counted).run());
        sleep(SECOND / 4).await;
        drop(flight);
        sleep(2 * SECOND).await;
        assert_eq!(counted.counts(), (1, 0));
        assert_eq!(Arc::strong_count(&counted), 1);
    }

    #[tokio::test(start_paused = true)]
    async fn callers_get_the_last_failure_until_the_backoff_is_over() {
        let (flight, counted) = (SingleFlight::new(), Arc::new(Counted::default()));
        let run = || flight.run(|| Arc::clone(&counted).run());
        assert!(flight.run(|| async { Err(Failure::Dropped) }).await.is_err());
        assert!(flight.has_failed());
        assert!(run().await.is_err());
        assert_eq!(counted.counts(), (0, 0));
        advance(SECOND).await;
        run().await.expect("it runs again");
        assert!(!flight.has_failed());
        flight.fail(Failure::Dropped);
        assert!(flight.has_failed());
        assert!(run().await.is_err());
        assert_eq!(counted.counts(), (1, 1));
    }

    #[tokio::test(start_paused = true)]
    async fn a_success_holds_for_the_minimal_interval() {
        let flight = SingleFlight::with_min_interval(SECOND);
        let counted = Arc::new(Counted::default());
        for _ in 0..3 {
            flight.run(|| Arc::clone(&counted).run()).await.expect("it succeeds");
        }
        assert_eq!(counted.counts(), (1, 1));
        advance(SECOND).await;
        flight.run(|| Arc::clone(&counted).run()).await.expect("it succeeds");
        assert_eq!(counted.counts(), (2, 2));
    }

    #[tokio::test]
    async fn delays_double_up_to_the_longest() {
        let (mut now, mut backoff) = (Instant::now(), Backoff::default());
        assert!(backoff.is_over(now));
        for number in 0..12 {
            backoff.fail(now);
            let delay = (FIRST_DELAY * (1 << number)).min(MAX_DELAY);
            assert!(!backoff.is_over(now + delay / 2 - Duration::from_millis(1)), "{number}");
            assert!(backoff.is_over(now + delay), "{number}");
            now += delay;
        }
        // A success changes nothing, time does.
        backoff.pause(now, Duration::ZERO);
        assert!(backoff.is_over(now));
        backoff.fail(now);
        assert!(!backoff.is_over(now + FIRST_DELAY));
        now += MAX_DELAY + 2 * FORGET_AFTER;
        backoff.fail(now);
        assert!(backoff.is_over(now + FIRST_DELAY));
    }
}
