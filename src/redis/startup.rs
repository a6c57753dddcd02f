//! The start of a store: its first connection, and a trial of the script.

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
    connection::SingleFlight,
    error::{Failure, TrialFailure},
    trial::Trial,
};
use crate::{error::Error, random, telemetry};

/// The time after the start of a store for which calls with a deadline wait for its first
/// connection. Later calls fail at once until there is one, so an outage at the start costs them
/// nothing.
const FIRST_CONNECTION_WAIT: Duration = Duration::from_millis(50);

/// The longest time between two attempts to start.
const MAX_RETRY_DELAY: Duration = Duration::from_millis(250);

/// The start of a store that was created without a connection.
///
/// A task connects and runs the [`Trial`], again and again until it succeeds. It ends with the
/// `Startup`.
pub(super) struct Startup {
    trial: Trial,
    starting: SingleFlight,
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
    Failed(TrialFailure),
    Ready,
}

impl Startup {
    /// Creates the start of a store, and begins it if this is called in a tokio runtime. Otherwise
    /// the first call begins it.
    pub(super) fn new(trial: Trial, connect_timeout: Duration) -> Self {
        let progress = StartProgress {
            is_ready: AtomicBool::new(false),
            state: watch::Sender::new(State::Starting),
        };
        let startup = Self {
            trial,
            starting: SingleFlight::new(),
            progress: Arc::new(progress),
            started: OnceLock::new(),
            connect_timeout,
        };
        startup.begin();
        startup
    }

    /// Returns whether the store has connected and the trial has succeeded.
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
        let (trial, progress) = (self.trial.clone(), Arc::clone(&self.progress));
        self.starting.start(|| start(trial, progress));
        *self.started.get_or_init(Instant::now)
    }
}

/// Connects and runs the trial until it succeeds.
async fn start(trial: Trial, progress: Arc<StartProgress>) -> Result<(), Failure> {
    while let Err(failure) = trial.run().await {
        telemetry::store_failed(&failure.clone().into());
        progress.state.send_replace(State::Failed(failure));
        sleep(retry_delay()).await;
    }
    progress.is_ready.store(true, Ordering::Release);
    progress.state.send_replace(State::Ready);
    Ok(())
}

/// Returns a random time between half of [`MAX_RETRY_DELAY`] and all of it, so that the instances of
/// a service do not all connect at once.
fn retry_delay() -> Duration {
    let part = (random::number() % 1_000) as f64 / 1_000.0;
    MAX_RETRY_DELAY / 2 + (MAX_RETRY_DELAY / 2).mul_f64(part)
}

fn not_ready(failure: &TrialFailure) -> Failure {
    Failure::NotReady(Some(Box::new(failure.clone())))
}

impl fmt::Debug for Startup {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Startup").field("is_ready", &self.is_ready()).finish_non_exhaustive()
    }
}
