//! Operations that run at most once at a time.

use std::{fmt, sync::Arc, time::Duration};

use tokio::{sync::watch, task::AbortHandle, time::Instant};

use super::time_limit::{runtime_with_timer, saturating_add};
use crate::{random, sync::Mutex};

/// An operation that runs at most once at a time. Concurrent callers share its result.
///
/// The operation runs in a task, so it continues when its callers stop waiting. Requests with short
/// deadlines can therefore share an operation that takes longer than each of them. If its runtime
/// ends, the next caller starts it again. After a failure, calls return that failure until a
/// [`Backoff`] is over. Dropping the `SingleFlight` aborts the operation.
pub(crate) struct SingleFlight<E> {
    state: Arc<Mutex<FlightState<E>>>,
    /// The time for which a success is also the result of later calls.
    min_interval: Duration,
}

/// The reason why a call of [`SingleFlight::run`] has no success.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum FlightError<E> {
    /// The operation has failed.
    Failed(E),
    /// The caller is outside of a tokio runtime with timers, so the operation cannot run.
    NoRuntime,
    /// The runtime ended before the operation did.
    Interrupted,
}

struct FlightState<E> {
    running: Option<RunningOperation<E>>,
    last: Option<Result<(), E>>,
    backoff: Backoff,
}

struct RunningOperation<E> {
    result: ResultReceiver<E>,
    task: AbortHandle,
}

/// Receives the result of the operation when it ends.
type ResultReceiver<E> = watch::Receiver<Option<Result<(), E>>>;

impl<E: Clone + Send + Sync + 'static> SingleFlight<E> {
    /// Creates a `SingleFlight` that runs the operation again at any time after a success.
    pub(crate) fn new() -> Self {
        Self::with_min_interval(Duration::ZERO)
    }

    /// Creates a `SingleFlight` that runs the operation no sooner than `min_interval` after a
    /// success.
    pub(crate) fn with_min_interval(min_interval: Duration) -> Self {
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
    pub(crate) async fn run<F>(&self, operation: impl FnOnce() -> F) -> Result<(), FlightError<E>>
    where
        F: Future<Output = Result<(), E>> + Send + 'static,
    {
        let mut result = self.start_or_share(operation)?;
        match result.wait_for(Option::is_some).await {
            Ok(result) => result.clone().unwrap_or(Ok(())).map_err(FlightError::Failed),
            Err(_) => Err(FlightError::Interrupted),
        }
    }

    /// Starts `operation` unless one is running, and does not wait for it.
    ///
    /// A failure is ignored here, and returned by later calls.
    pub(crate) fn start<F>(&self, operation: impl FnOnce() -> F)
    where
        F: Future<Output = Result<(), E>> + Send + 'static,
    {
        let _ = self.start_or_share(operation);
    }

    /// Turns the last success into a failure, because its product has proved useless.
    pub(crate) fn fail(&self, failure: E) {
        self.state.lock().complete(Err(failure), self.min_interval);
    }

    /// Returns the failure of the last operation, if it has failed.
    pub(crate) fn failure(&self) -> Option<E> {
        self.state.lock().last.clone()?.err()
    }

    fn start_or_share<F>(
        &self,
        operation: impl FnOnce() -> F,
    ) -> Result<ResultReceiver<E>, FlightError<E>>
    where
        F: Future<Output = Result<(), E>> + Send + 'static,
    {
        let mut state = self.state.lock();
        // A task that has ended without a result has ended with its runtime.
        if let Some(running) = state.running.as_ref().filter(|it| !it.task.is_finished()) {
            return Ok(running.result.clone());
        }
        if let Some(last) = &state.last
            && !state.backoff.is_over(Instant::now())
        {
            let result = last.clone().map_err(FlightError::Failed);
            return result.map(|()| watch::channel(Some(Ok(()))).1);
        }
        let Some(runtime) = runtime_with_timer() else { return Err(FlightError::NoRuntime) };
        let (sender, result) = watch::channel(None);
        let shared = Arc::clone(&self.state);
        let min_interval = self.min_interval;
        let operation = operation();
        let task = runtime.spawn(async move {
            let result = operation.await;
            let mut state = shared.lock();
            state.running = None;
            state.complete(result.clone(), min_interval);
            drop(state);
            sender.send_replace(Some(result));
        });
        let task = task.abort_handle();
        state.running = Some(RunningOperation { result: result.clone(), task });
        Ok(result)
    }
}

impl<E> FlightState<E> {
    fn complete(&mut self, result: Result<(), E>, min_interval: Duration) {
        match &result {
            Ok(()) => self.backoff.pause(Instant::now(), min_interval),
            Err(_) => self.backoff.fail(Instant::now()),
        }
        self.last = Some(result);
    }
}

impl<E> Default for FlightState<E> {
    fn default() -> Self {
        Self { running: None, last: None, backoff: Backoff::default() }
    }
}

impl<E> Drop for SingleFlight<E> {
    fn drop(&mut self) {
        if let Some(running) = self.state.lock().running.take() {
            running.task.abort();
        }
    }
}

impl<E> fmt::Debug for SingleFlight<E> {
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
struct Backoff {
    failures: u32,
    retry_at: Option<Instant>,
}

impl Backoff {
    /// Returns whether the operation may run again.
    fn is_over(&self, now: Instant) -> bool {
        self.retry_at.is_none_or(|retry_at| now >= retry_at)
    }

    /// Starts a fixed delay, after a success.
    fn pause(&mut self, now: Instant, pause: Duration) {
        self.retry_at = Some(saturating_add(now, pause));
    }

    /// Starts the next delay, after a failure.
    ///
    /// A success does not reset the delay. Otherwise a server whose connections open but fail at
    /// the first request would get a new connection for each request.
    fn fail(&mut self, now: Instant) {
        if self.retry_at.is_some_and(|retry_at| now > retry_at + FORGET_AFTER) {
            self.failures = 0;
        }
        let delay = FIRST_DELAY * (1 << self.failures.min(10));
        self.failures = self.failures.saturating_add(1);
        let delay = delay.min(MAX_DELAY);
        // The instances that lost the same server do not all reconnect at once.
        self.retry_at = Some(now + random::half_or_more(delay));
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering::SeqCst};

    use tokio::{
        runtime::Builder,
        time::{advance, sleep, timeout},
    };

    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[derive(Debug, Clone, PartialEq)]
    struct Broken;

    /// An operation that takes a second, and counts how often it was started and completed.
    #[derive(Default)]
    struct Counted {
        started: AtomicU32,
        completed: AtomicU32,
    }

    impl Counted {
        async fn run(self: Arc<Self>) -> Result<(), Broken> {
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
        assert!(flight.run(|| async { Err(Broken) }).await.is_err());
        assert_eq!(flight.failure(), Some(Broken));
        assert!(run().await.is_err());
        assert_eq!(counted.counts(), (0, 0));
        advance(SECOND).await;
        run().await.expect("it runs again");
        assert_eq!(flight.failure(), None);
        flight.fail(Broken);
        assert_eq!(flight.failure(), Some(Broken));
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

    #[tokio::test(start_paused = true)]
    async fn an_operation_ends_with_its_owner() {
        let (flight, counted) = (SingleFlight::new(), Arc::new(Counted::default()));
        flight.start(|| Arc::clone(&counted).run());
        sleep(SECOND / 4).await;
        drop(flight);
        sleep(2 * SECOND).await;
        assert_eq!(counted.counts(), (1, 0));
    }

    /// A runtime that ends drops the operation.
    #[test]
    fn an_operation_starts_again_elsewhere_if_its_runtime_ends() {
        let runtime = || Builder::new_current_thread().enable_all().build().expect("a runtime");
        let (flight, ended) = (SingleFlight::<Broken>::new(), runtime());
        ended.block_on(async { flight.start(std::future::pending) });
        drop(ended);
        let run = async { flight.run(|| async { Ok(()) }).await };
        assert_eq!(runtime().block_on(async { timeout(SECOND, run).await }), Ok(Ok(())));
    }
}
