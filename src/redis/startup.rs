//! The start of a store: its first connection and its self-test, until both succeed.

use std::{
    fmt,
    sync::{
        Arc, OnceLock,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use tokio::{
    sync::watch,
    time::{Instant, sleep, timeout_at},
};

use super::{
    error::{Failure, SelfTestFailure},
    self_test::SelfTest,
};
use crate::{error::Error, random, runtime::SingleFlight, telemetry};

/// The time after the start of a store for which calls with a deadline wait for its first
/// connection. Later calls fail at once until there is one, so an outage at the start costs them
/// nothing.
const FIRST_CONNECTION_WAIT: Duration = Duration::from_millis(50);

/// The longest time between two attempts to start.
const MAX_RETRY_DELAY: Duration = Duration::from_millis(250);

/// The start of a store that was created without a connection.
///
/// A task connects and runs the [`SelfTest`], again and again until it succeeds. It ends with the
/// `Startup`.
pub(super) struct Startup {
    self_test: SelfTest,
    starting: SingleFlight<Failure>,
    progress: Arc<StartProgress>,
    /// The time of the first attempt.
    started: OnceLock<Instant>,
    /// The time for which calls without a deadline wait for the first connection.
    connect_timeout: Duration,
}

struct StartProgress {
    is_ready: AtomicBool,
    state: watch::Sender<State>,
}

enum State {
    /// The first attempt has not ended.
    Starting,
    /// The last attempt has failed.
    Failed(SelfTestFailure),
    Ready,
}

impl Startup {
    /// Creates the start of a store, and begins it if this is called in a tokio runtime. Otherwise
    /// the first call begins it.
    pub(super) fn new(self_test: SelfTest, connect_timeout: Duration) -> Self {
        let progress = StartProgress {
            is_ready: AtomicBool::new(false),
            state: watch::Sender::new(State::Starting),
        };
        let startup = Self {
            self_test,
            starting: SingleFlight::new(),
            progress: Arc::new(progress),
            started: OnceLock::new(),
            connect_timeout,
        };
        startup.begin();
        startup
    }

    /// Returns whether the store has connected and the self-test has succeeded.
    pub(super) fn is_ready(&self) -> bool {
        self.progress.is_ready.load(Ordering::Acquire)
    }

    /// Returns the reason why the store is not ready, or `None` if it is.
    pub(super) fn failure(&self) -> Option<Error> {
        match &*self.progress.state.borrow() {
            State::Ready => None,
            State::Starting => Some(Failure::NotReady(None).into()),
            State::Failed(failure) => Some(not_ready(failure).into()),
        }
    }

    /// Waits until the store is ready.
    ///
    /// # Errors
    ///
    /// Returns an error if the last attempt has failed, or the first one takes too long.
    pub(super) async fn ready(&self, deadline: Option<Instant>) -> Result<(), Failure> {
        let started = self.begin();
        let until = match deadline {
            Some(deadline) => deadline.min(started + FIRST_CONNECTION_WAIT),
            None => started + self.connect_timeout,
        };
        let mut state = self.progress.state.subscribe();
        let ended = state.wait_for(|state| !matches!(state, State::Starting));
        // Without a timely end the state is still that of the first attempt.
        let _ = timeout_at(until, ended).await;
        match &*self.progress.state.borrow() {
            State::Ready => Ok(()),
            State::Failed(failure) => Err(not_ready(failure)),
            State::Starting => Err(Failure::NotReady(None)),
        }
    }

    /// Starts the task, unless it runs. Returns the time of its first start.
    fn begin(&self) -> Instant {
        let (self_test, progress) = (self.self_test.clone(), Arc::clone(&self.progress));
        self.starting.start(|| start(self_test, progress));
        *self.started.get_or_init(Instant::now)
    }
}

/// Connects and runs the self-test until it succeeds.
async fn start(self_test: SelfTest, progress: Arc<StartProgress>) -> Result<(), Failure> {
    while let Err(failure) = self_test.run().await {
        telemetry::store_failed(&failure.clone().into());
        progress.state.send_replace(State::Failed(failure));
        sleep(random::half_or_more(MAX_RETRY_DELAY)).await;
    }
    progress.is_ready.store(true, Ordering::Release);
    progress.state.send_replace(State::Ready);
    Ok(())
}

fn not_ready(failure: &SelfTestFailure) -> Failure {
    Failure::NotReady(Some(Box::new(failure.clone())))
}

impl fmt::Debug for Startup {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Startup").field("is_ready", &self.is_ready()).finish_non_exhaustive()
    }
}
