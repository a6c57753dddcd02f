//! The start of a store: its first connection, and a self-test of the script.

use std::{
    fmt, slice,
    sync::{
        Arc, OnceLock,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use smallvec::{SmallVec, smallvec};
use tokio::{
    sync::watch,
    task::JoinSet,
    time::{Instant, sleep, timeout_at},
};

use super::{
    backend::Backend,
    batch::Batcher,
    error::{Failure, SelfTestFailure, SentFlag},
    key_name::{self, KeyNames},
    script::ScriptCall,
    wire::{Operation, WireCharge, WireCheck},
};
use crate::{error::Error, random, runtime::SingleFlight, store::probe_charge, telemetry};

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

/// The most scratch keys that are tried to find one for each node of a cluster.
const MAX_SCRATCH_KEYS: usize = 16_384;

type ScratchKeys = SmallVec<[WireCharge; 3]>;

/// The self-test of a store: it connects, and runs `lua/self_test.lua` on scratch keys.
///
/// The script runs each of its commands, so a missing right, a wrong key pattern, a server that
/// does not write, a server that is too old, and a node of a cluster that was addressed as a single
/// server fail the self-test. The scratch keys have the configured prefix. The script deletes them.
#[derive(Debug, Clone)]
pub(super) struct SelfTest {
    batcher: Batcher,
    key_names: KeyNames,
}

impl SelfTest {
    pub(super) fn new(batcher: Batcher, key_names: KeyNames) -> Self {
        Self { batcher, key_names }
    }

    /// Connects and runs the self-test.
    ///
    /// In a cluster it runs on each node. A node that cannot be reached, or cannot serve requests for
    /// the time being, fails the self-test only if all nodes do: the other nodes decide their keys.
    ///
    /// # Errors
    ///
    /// Returns an error if no server can be reached, or one of them refuses a command.
    pub(super) async fn run(&self) -> Result<(), SelfTestFailure> {
        let backend = self.batcher.backend();
        backend.connect().await.map_err(|failure| self.failure(0, failure))?;
        match backend {
            Backend::Server(..) => self.try_keys(0, self.keys_of_two_slots()).await,
            Backend::Cluster(_) => self.try_nodes().await,
        }
    }

    async fn try_nodes(&self) -> Result<(), SelfTestFailure> {
        let mut tests = JoinSet::new();
        for (slot, key) in self.key_of_each_node() {
            let self_test = self.clone();
            tests.spawn(async move { self_test.try_keys(slot, smallvec![key]).await });
        }
        let (mut has_passed, mut unreachable) = (false, None);
        while let Some(result) = tests.join_next().await {
            match result {
                Ok(Ok(())) => has_passed = true,
                Ok(Err(failed)) if failed.failure.is_refusal() => return Err(failed),
                Ok(Err(failed)) => unreachable = Some(failed),
                // The runtime is shutting down.
                Err(_) => {}
            }
        }
        match unreachable {
            Some(failed) if !has_passed => Err(failed),
            _ => Ok(()),
        }
    }

    /// Runs the script for these scratch keys, on the server that has the slot.
    async fn try_keys(&self, slot: u16, keys: ScratchKeys) -> Result<(), SelfTestFailure> {
        let (check, sent_flag) = (WireCheck::new(keys), SentFlag::default());
        let call = ScriptCall::new(Operation::SelfTest, slice::from_ref(&check), None, &sent_flag);
        let result = self.batcher.backend().run(slot, &call).await;
        result.map(drop).map_err(|failure| self.failure(slot, failure))
    }

    /// Returns two scratch keys of different slots. A single server takes them in one call, and a
    /// node of a cluster does not.
    fn keys_of_two_slots(&self) -> ScratchKeys {
        let mut keys = ScratchKeys::new();
        for (slot, key) in self.scratch_keys() {
            match keys.first() {
                None => keys.push(key),
                Some(first) if key_name::slot(first.key_name()) == slot => {}
                Some(_) => {
                    keys.push(key);
                    break;
                }
            }
        }
        keys
    }

    /// Returns a scratch key for each node that has slots, and the slot of the key.
    fn key_of_each_node(&self) -> Vec<(u16, WireCharge)> {
        let Backend::Cluster(cluster) = self.batcher.backend() else { return Vec::new() };
        let mut untried = cluster.topology().owners();
        let mut keys = Vec::new();
        for (slot, key) in self.scratch_keys() {
            if untried.is_empty() {
                break;
            }
            if untried.remove(&cluster.node(slot)) {
                keys.push((slot, key));
            }
        }
        keys
    }

    /// Returns random keys with their slots.
    fn scratch_keys(&self) -> impl Iterator<Item = (u16, WireCharge)> {
        let charges = (0..MAX_SCRATCH_KEYS).filter_map(|_| probe_charge());
        charges.map(|charge| {
            let key = WireCharge::new(&self.key_names, 0, &charge);
            (key_name::slot(key.key_name()), key)
        })
    }

    fn failure(&self, slot: u16, failure: Failure) -> SelfTestFailure {
        SelfTestFailure { failure, place: self.batcher.backend().place(slot) }
    }
}
