//! The constructors of the shared store, and its implementation of [`Store`].

use std::{sync::Arc, time::Duration};

#[cfg(feature = "bb8")]
use bb8_redis::RedisConnectionManager;

#[cfg(feature = "bb8")]
use super::connection::AppPoolConnector;
use super::{
    RedisConfig,
    backend::Backend,
    batch::Batcher,
    cluster::Cluster,
    connection::{Connector, Pool, SentinelConnector, ServerConnector},
    error::Failure,
    key_name::{self, KeyNames},
    multi_slot::CallOptions,
    script::ScriptLoader,
    startup::Startup,
    test_time::TestTime,
    trial::Trial,
    wire::{Operation, WireCharge, WireCheck},
};
use crate::{
    algorithm::block_micros,
    decision::Receipt,
    error::Error,
    policy::{Charge, Policy},
    quota::{Algorithm, Quota},
    store::{
        Answer, NodeId, Request, Status, Store,
        scheduling::{TimeLimit, runtime_with_timer},
    },
};

#[doc = include_str!("../../../docs/redis.md")]
#[derive(Debug, Clone)]
pub struct RedisStore(Arc<StoreShared>);

#[derive(Debug)]
struct StoreShared {
    batcher: Batcher,
    key_names: KeyNames,
    max_log_entries: u64,
    /// The text of [`Store::description`].
    description: Box<str>,
    test_time: TestTime,
    /// The start of a [lazy](RedisConfig::lazy) store.
    startup: Option<Startup>,
}

impl RedisStore {
    /// Connects to the server at a URL, with the default [`RedisConfig`], and runs the
    /// [trial](Self#what-connecting-checks) of the script.
    ///
    /// The URL is `redis://[user[:password]@]host[:port][/db]`, `rediss://..` for TLS, or
    /// `unix:///path[?user=..&pass=..&db=..]`.
    ///
    /// # Errors
    ///
    /// Returns an error if the URL is not valid, no server answers there, the password is wrong, or the
    /// trial fails. [`connect_lazy`](Self::connect_lazy) starts without a server.
    pub async fn connect(url: &str) -> Result<Self, Error> {
        Self::connect_with(url, RedisConfig::default()).await
    }

    /// Creates a store that connects to the server at a URL in the background, with the default
    /// [`RedisConfig`]. Until it has connected, its checks fail at once, so a
    /// [`Limiter`](crate::Limiter) over it decides by its
    /// [fallback](crate::store::Resilience::fallback).
    ///
    /// The other constructors do the same with [`RedisConfig::lazy`]. See [Starting without
    /// Redis](Self#starting-without-redis).
    ///
    /// # Errors
    ///
    /// Returns an error if the URL is not valid. A server that cannot be reached is not an error.
    pub fn connect_lazy(url: &str) -> Result<Self, Error> {
        let config = RedisConfig::default();
        let server = ServerConnector::from_url(url, &config).map_err(Failure::ServerError)?;
        Ok(Self::lazy(server_backend(Connector::Server(Box::new(server)), &config), &config))
    }

    /// Connects like [`connect`](Self::connect), with the given [`RedisConfig`].
    ///
    /// # Errors
    ///
    /// Returns an error as [`connect`](Self::connect) does, or if a value of the configuration is
    /// not valid.
    pub async fn connect_with(url: &str, config: RedisConfig) -> Result<Self, Error> {
        config.validate()?;
        let server = ServerConnector::from_url(url, &config).map_err(Failure::ServerError)?;
        Self::start(server_backend(Connector::Server(Box::new(server)), &config), &config).await
    }

    /// Connects through the manager of the application's own [pool](bb8::Pool): with its address,
    /// user, password, certificates and connection customizer.
    ///
    /// The store opens [`connections`](RedisConfig::connections) connections of its own, which the
    /// pool's `max_size` does not count. It never uses the connections that the application checks
    /// out, so the application may use transactions, `SELECT` and blocking commands on them. Set
    /// `TCP_NODELAY` in the manager's connection info. Without it, a request can wait until the server
    /// has acknowledged an earlier one.
    ///
    /// # Errors
    ///
    /// Returns an error if the pool's manager cannot connect, or if the
    /// [trial](Self#what-connecting-checks) fails.
    #[cfg(feature = "bb8")]
    pub async fn from_pool(pool: bb8::Pool<RedisConnectionManager>) -> Result<Self, Error> {
        Self::from_pool_with(pool, RedisConfig::default()).await
    }

    /// Connects like [`from_pool`](Self::from_pool), with the given [`RedisConfig`]. Its
    /// certificates are ignored, because those of the pool are used.
    ///
    /// # Errors
    ///
    /// Returns an error as [`from_pool`](Self::from_pool) does, or if a value of the configuration
    /// is not valid.
    #[cfg(feature = "bb8")]
    pub async fn from_pool_with(
        pool: bb8::Pool<RedisConnectionManager>,
        config: RedisConfig,
    ) -> Result<Self, Error> {
        config.validate()?;
        let connector = Connector::AppPool(AppPoolConnector::new(pool));
        Self::start(server_backend(connector, &config), &config).await
    }

    /// Connects to the primary that Redis Sentinel names, and follows it after a failover.
    ///
    /// `sentinels` are the URLs of some sentinels. `primary` is the name, or a URL with the name as
    /// its host: `rediss://user:password@name/0`.
    ///
    /// # Errors
    ///
    /// Returns an error if a URL is not valid, if no sentinel names a primary that answers, or if the
    /// [trial](Self#what-connecting-checks) fails.
    pub async fn sentinel<S: Into<String>>(
        sentinels: impl IntoIterator<Item = S>,
        primary: &str,
    ) -> Result<Self, Error> {
        Self::sentinel_with(sentinels, primary, RedisConfig::default()).await
    }

    /// Connects like [`sentinel`](Self::sentinel), with the given [`RedisConfig`].
    ///
    /// # Errors
    ///
    /// Returns an error as [`sentinel`](Self::sentinel) does, or if a value of the configuration is
    /// not valid.
    pub async fn sentinel_with<S: Into<String>>(
        sentinels: impl IntoIterator<Item = S>,
        primary: &str,
        config: RedisConfig,
    ) -> Result<Self, Error> {
        config.validate()?;
        let sentinels: Vec<String> = sentinels.into_iter().map(Into::into).collect();
        let sentinels =
            SentinelConnector::new(&sentinels, primary, &config).map_err(Failure::ServerError)?;
        let connector = Connector::Sentinel(Box::new(sentinels));
        Self::start(server_backend(connector, &config), &config).await
    }

    /// Connects to a cluster. `nodes` are the URLs of some of its nodes. The user, password and TLS
    /// settings of the first URL are used for all nodes.
    ///
    /// # Errors
    ///
    /// Returns an error if a URL is not valid, if no node answers, or if the
    /// [trial](Self#what-connecting-checks) fails on one of the nodes that answer.
    pub async fn cluster<S: Into<String>>(
        nodes: impl IntoIterator<Item = S>,
    ) -> Result<Self, Error> {
        Self::cluster_with(nodes, RedisConfig::default()).await
    }

    /// Connects like [`cluster`](Self::cluster), with the given [`RedisConfig`].
    ///
    /// # Errors
    ///
    /// Returns an error as [`cluster`](Self::cluster) does, or if a value of the configuration is
    /// not valid.
    pub async fn cluster_with<S: Into<String>>(
        nodes: impl IntoIterator<Item = S>,
        config: RedisConfig,
    ) -> Result<Self, Error> {
        config.validate()?;
        let nodes: Vec<String> = nodes.into_iter().map(Into::into).collect();
        let cluster = Cluster::new(&nodes, &config).map_err(Failure::ServerError)?;
        Self::start(Backend::Cluster(Box::new(cluster)), &config).await
    }

    /// Returns an error if this store cannot keep the quota of a [`Policy`]: a
    /// [`SlidingLog`](Algorithm::SlidingLog) with a limit above
    /// [`max_log_entries`](RedisConfig::max_log_entries) would keep the server busy for too long.
    ///
    /// Call this when the program starts. A [check](crate::Limiter::check) under such a policy
    /// fails with the same error.
    ///
    /// # Errors
    ///
    /// Returns an error of the kind [`Invalid`](crate::ErrorKind::Invalid) if the log could become
    /// too long. [`SlidingBuckets`](Algorithm::SlidingBuckets) has no such limit.
    pub fn admits(&self, policy: &Policy) -> Result<(), Error> {
        self.admits_quota(policy.name(), &policy.quota())
    }

    /// Sets a clock that gives the time of each call, for tests. Keys then expire after a day.
    ///
    /// # Panics
    ///
    /// Panics if the store has been cloned.
    #[cfg(feature = "test-util")]
    #[doc(hidden)]
    #[must_use]
    pub fn with_test_clock(self, clock: impl crate::clock::Clock) -> Self {
        let test_time = TestTime(Some(Arc::new(clock)));
        match Arc::try_unwrap(self.0) {
            Ok(shared) => Self(Arc::new(StoreShared { test_time, ..shared })),
            Err(_) => panic!("set the clock before the store is shared"),
        }
    }

    /// Creates a store, and waits for its trial unless it is lazy.
    async fn start(backend: Backend, config: &RedisConfig) -> Result<Self, Error> {
        if config.lazy {
            return Ok(Self::lazy(backend, config));
        }
        if runtime_with_timer().is_none() {
            return Err(Failure::NoRuntime.into());
        }
        let (batcher, key_names) = parts(backend, config);
        Trial::new(batcher.clone(), key_names.clone()).run().await?;
        Ok(Self::over(batcher, key_names, None, config))
    }

    fn lazy(backend: Backend, config: &RedisConfig) -> Self {
        let (batcher, key_names) = parts(backend, config);
        let trial = Trial::new(batcher.clone(), key_names.clone());
        let startup = Startup::new(trial, config.connect_timeout);
        Self::over(batcher, key_names, Some(startup), config)
    }

    fn over(
        batcher: Batcher,
        key_names: KeyNames,
        startup: Option<Startup>,
        config: &RedisConfig,
    ) -> Self {
        Self(Arc::new(StoreShared {
            description: description(&batcher, config).into(),
            batcher,
            key_names,
            max_log_entries: config.max_log_entries,
            test_time: TestTime::default(),
            startup,
        }))
    }

    fn admits_quota(&self, name: &str, quota: &Quota) -> Result<(), Error> {
        let max = self.0.max_log_entries;
        if quota.algorithm() != Algorithm::SlidingLog || quota.limit() <= max {
            return Ok(());
        }
        let allowed = format!(
            "1 to {max} for a sliding log in Redis: count with Algorithm::SlidingBuckets(n) \
             instead (exact too, units come back up to 1/n of the window late), or raise \
             RedisConfig::max_log_entries"
        );
        Err(Error::invalid(&format!("limit of policy {name}"), quota.limit(), allowed))
    }

    fn wire_check(&self, charges: &[Charge<'_>]) -> Result<WireCheck, Error> {
        self.wire_charges(charges, |charge| charge)
    }

    fn wire_block(&self, charges: &[Charge<'_>], duration: Duration) -> Result<WireCheck, Error> {
        let micros = block_micros(duration);
        self.wire_charges(charges, |charge| charge.block(micros))
    }

    fn wire_charges(
        &self,
        charges: &[Charge<'_>],
        change: impl Fn(WireCharge) -> WireCharge,
    ) -> Result<WireCheck, Error> {
        let charges = charges.iter().enumerate().map(|(position, charge)| {
            self.admits_quota(charge.policy().name(), charge.quota())?;
            Ok(change(WireCharge::new(&self.0.key_names, position, charge)))
        });
        Ok(WireCheck::new(charges.collect::<Result<_, Error>>()?))
    }

    fn wire_refund(&self, receipt: &Receipt) -> WireCheck {
        let lines = receipt.lines().iter().enumerate();
        let charges =
            lines.map(|(position, spent)| WireCharge::refund(&self.0.key_names, position, spent));
        WireCheck::new(charges.collect())
    }

    fn execute(&self, request: Request<'_>, deadline: Option<TimeLimit>) -> Answer {
        let (operation, check) = match request {
            Request::Acquire(charges) => (Operation::Acquire, self.wire_check(charges)),
            Request::Peek(charges) => (Operation::Peek, self.wire_check(charges)),
            Request::Force(charges) => (Operation::Force, self.wire_check(charges)),
            Request::Reset(charges) => (Operation::Reset, self.wire_check(charges)),
            Request::Block(charges, duration) => {
                (Operation::Block, self.wire_block(charges, duration))
            }
            Request::Unblock(charges) => (Operation::Unblock, self.wire_check(charges)),
            Request::Refund(receipt) => (Operation::Refund, Ok(self.wire_refund(receipt))),
        };
        match check {
            Ok(check) => {
                let (shared, test_time) = (Arc::clone(&self.0), self.0.test_time.now());
                let options = CallOptions { operation, deadline, test_time };
                let reply = async move {
                    // With a deadline there are timers.
                    if deadline.is_none() && runtime_with_timer().is_none() {
                        return Err(Failure::NoRuntime.into());
                    }
                    shared.ready(deadline).await?;
                    shared.batcher.execute(&check, options).await
                };
                match deadline {
                    Some(_) => Answer::timed(reply),
                    None => Answer::pending(reply),
                }
            }
            Err(error) => Answer::ready(Err(error)),
        }
    }
}

impl StoreShared {
    /// Waits for the start of a lazy store.
    async fn ready(&self, deadline: Option<TimeLimit>) -> Result<(), Failure> {
        match &self.startup {
            Some(startup) if !startup.is_ready() => {
                startup.ready(deadline.map(TimeLimit::time)).await
            }
            _ => Ok(()),
        }
    }
}

fn server_backend(connector: Connector, config: &RedisConfig) -> Backend {
    Backend::Server(Box::new(Pool::new(connector, config)), ScriptLoader::default())
}

/// Returns the text of [`Store::description`].
fn description(batcher: &Batcher, config: &RedisConfig) -> String {
    let RedisConfig { connections, prefix, .. } = config;
    let kind = batcher.backend().kind();
    let each = if matches!(batcher.backend(), Backend::Cluster(_)) { " to each node" } else { "" };
    let noun = if *connections == 1 { "connection" } else { "connections" };
    format!("Redis ({kind}, {connections} {noun}{each}, prefix {prefix})")
}

fn parts(backend: Backend, config: &RedisConfig) -> (Batcher, KeyNames) {
    (Batcher::new(backend, config.batching), KeyNames::new(config))
}

impl Store for RedisStore {
    fn call(&self, request: Request<'_>) -> Answer {
        self.execute(request, None)
    }

    fn call_by(&self, request: Request<'_>, deadline: std::time::Instant) -> Answer {
        self.execute(request, Some(TimeLimit::at(deadline.into())))
    }

    fn counts_leases(&self) -> bool {
        true
    }

    fn status(&self) -> Status {
        match self.0.startup.as_ref().and_then(Startup::failure) {
            Some(error) => Status::new().with_not_ready(error.to_string()),
            None => Status::new(),
        }
    }

    fn description(&self) -> String {
        self.0.description.to_string()
    }

    fn has_debt_marks(&self) -> bool {
        true
    }

    fn node(&self, charge: &Charge<'_>) -> NodeId {
        match self.0.batcher.backend() {
            Backend::Server(..) => NodeId::ONLY,
            Backend::Cluster(cluster) => {
                cluster.node(key_name::slot(&self.0.key_names.name(charge)))
            }
        }
    }

    fn has_node(&self, node: NodeId) -> bool {
        self.0.batcher.backend().has_node(node)
    }
}
