//! The start of a store: its first connection and its self-test.

use std::{
    sync::{
        Arc, OnceLock,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use tokio::{
    task::JoinSet,
    time::{Instant, timeout_at},
};

use super::{
    backend::Backend,
    batch::Batcher,
    cluster::Cluster,
    error::Failure,
    script::SentFlag,
    wire::{self, KeyNames, Operation, WireCharge, WireCheck},
};
use crate::{
    error::{Effect, Error, ErrorKind},
    runtime::{FlightError, SingleFlight, TimeLimit},
    store::probe_charge,
    telemetry,
};

/// The time after the start of a store for which calls with a deadline wait for its first
/// connection. Later calls fail at once until there is one, so an outage at the start costs them
/// nothing.
const FIRST_CONNECTION_WAIT: Duration = Duration::from_millis(50);

/// The start of a store that was created without a connection: an attempt to connect and to run the
/// [`SelfTest`], again and again until it succeeds.
pub(super) struct Startup {
    self_test: SelfTest,
    attempt: SingleFlight<SelfTestFailure>,
    is_ready: Arc<AtomicBool>,
    /// The time of the first attempt.
    started: OnceLock<Instant>,
    /// The time for which calls without a deadline wait for the first connection.
    connect_timeout: Duration,
}

impl Startup {
    /// Creates the start of a store, and begins it if this is called in a tokio runtime. Otherwise
    /// the first call begins it.
    pub(super) fn new(self_test: SelfTest, connect_timeout: Duration) -> Self {
        let startup = Self {
            self_test,
            attempt: SingleFlight::new(),
            is_ready: Arc::default(),
            started: OnceLock::new(),
            connect_timeout,
        };
        startup.attempt.start(|| startup.attempt());
        startup
    }

    /// Returns the reason why the store is not ready, or `None` if it is. If the last attempt has failed, the next
    /// one begins.
    pub(super) fn failure(&self) -> Option<Error> {
        if self.is_ready.load(Ordering::Acquire) {
            return None;
        }
        self.attempt.start(|| self.attempt());
        Some(self.last_failure())
    }

    /// Waits until the store is ready. If the last attempt has failed, the next one begins.
    ///
    /// # Errors
    ///
    /// Returns an error if the last attempt has failed, or the first one takes too long.
    pub(super) async fn ready(&self, deadline: Option<TimeLimit>) -> Result<(), Error> {
        if self.is_ready.load(Ordering::Acquire) {
            return Ok(());
        }
        let started = *self.started.get_or_init(Instant::now);
        let until = match deadline {
            Some(deadline) => deadline.time().min(started + FIRST_CONNECTION_WAIT),
            None => started + self.connect_timeout,
        };
        match timeout_at(until, self.attempt.run(|| self.attempt())).await {
            Ok(Ok(())) => Ok(()),
            Ok(Err(FlightError::NoRuntime)) => Err(Failure::NoRuntime.into()),
            _ => Err(self.last_failure()),
        }
    }

    fn attempt(&self) -> impl Future<Output = Result<(), SelfTestFailure>> + Send + use<> {
        let self_test = self.self_test.clone();
        let is_ready = Arc::clone(&self.is_ready);
        self.started.get_or_init(Instant::now);
        async move {
            let result = self_test.run().await;
            match &result {
                Ok(()) => is_ready.store(true, Ordering::Release),
                Err(failure) => telemetry::store_failed(&self_test.error(failure.clone())),
            }
            result
        }
    }

    fn last_failure(&self) -> Error {
        let error = match self.attempt.failure() {
            Some(failure) => self.self_test.error(failure),
            None => Error::new(
                ErrorKind::Unavailable,
                "the store has no connection to Redis yet; nothing was charged",
            ),
        };
        // The request was not sent.
        error.with_effect(Effect::None)
    }
}

/// The failure of a [`SelfTest`], and the slot of the server at which it happened.
pub(super) type SelfTestFailure = (u16, Failure);

/// The most scratch keys that are tried to find one for each node of a cluster.
const MAX_SCRATCH_KEYS: usize = 16_384;

/// The self-test of a store: it connects, and runs `lua/self_test.lua` on scratch keys.
///
/// The script runs each of its commands, so a missing right, a wrong key pattern, a server that
/// does not write, a server that is too old, and a node of a cluster that was addressed as a single
/// server fail the self-test. The scratch keys have the configured prefix. The script deletes them.
#[derive(Clone)]
pub(super) struct SelfTest {
    pub(super) batcher: Batcher,
    pub(super) key_names: KeyNames,
}

impl SelfTest {
    /// Connects and runs the self-test.
    ///
    /// In a cluster it runs on each node. A node that cannot be reached, or cannot serve requests for
    /// the time being, fails the self-test only if all nodes do: the other nodes decide their keys.
    ///
    /// # Errors
    ///
    /// Returns an error if no server can be reached, or one of them refuses a command.
    pub(super) async fn run(&self) -> Result<(), SelfTestFailure> {
        match self.batcher.backend() {
            Backend::Server(_) => {
                // They are in different slots, in all but one of 16,384 cases: a single server takes them in one
                // call, and a node of a cluster does not.
                let keys = self.scratch_keys().take(2).map(|(_, key)| key);
                self.try_keys(0, keys.collect()).await
            }
            Backend::Cluster(cluster) => {
                cluster.refresh().await.map_err(|failure| (0, failure))?;
                self.try_nodes(cluster).await
            }
        }
    }

    async fn try_nodes(&self, cluster: &Cluster) -> Result<(), SelfTestFailure> {
        let mut tests = JoinSet::new();
        for (slot, key) in self.key_of_each_node(cluster) {
            let self_test = self.clone();
            tests.spawn(async move { self_test.try_keys(slot, vec![key]).await });
        }
        let mut has_passed = false;
        let mut unreachable = None;
        while let Some(result) = tests.join_next().await {
            match result {
                Ok(Ok(())) => has_passed = true,
                Ok(Err(failed)) if failed.1.is_refusal() => return Err(failed),
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
    async fn try_keys(&self, slot: u16, keys: Vec<WireCharge>) -> Result<(), SelfTestFailure> {
        let check = [WireCheck::new(keys)];
        let sent_flag = SentFlag::default();
        let result = self.batcher.call(slot, Operation::SelfTest, &check, &sent_flag).await;
        result.map(drop).map_err(|failure| (slot, failure))
    }

    /// Returns a scratch key for each node that has slots, and the slot of the key.
    fn key_of_each_node(&self, cluster: &Cluster) -> Vec<(u16, WireCharge)> {
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
            (wire::slot(key.key_name()), key)
        })
    }

    /// Returns the error of a self-test that has failed.
    pub(super) fn error(&self, (slot, failure): SelfTestFailure) -> Error {
        self.batcher.backend().error(slot, failure)
    }
}
