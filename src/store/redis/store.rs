//! The constructors of the shared store, and its implementation of [`Store`].

use std::sync::Arc;

#[cfg(feature = "bb8")]
use bb8_redis::RedisConnectionManager;
use tokio::runtime::Handle;

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
    test_time::TestTime,
    wire::{Operation, WireCharge, WireCheck},
};
use crate::{
    decision::Receipt,
    error::Error,
    policy::{Charge, Policy},
    quota::{Algorithm, Quota},
    store::{Answer, NodeId, Request, Store, scheduling::TimeLimit},
};

#[doc = include_str!("../../../docs/redis.md")]
#[derive(Debug, Clone)]
pub struct RedisStore(Arc<StoreShared>);

#[derive(Debug)]
struct StoreShared {
    batcher: Batcher,
    key_names: KeyNames,
    max_log_entries: u64,
    test_time: TestTime,
}

impl RedisStore {
    /// Connects to the server at a URL, with the default [`RedisConfig`].
    ///
    /// The URL is `redis://[user[:password]@]host[:port][/db]`, `rediss://..` for TLS, or
    /// `unix:///path[?user=..&pass=..&db=..]`.
    ///
    /// # Errors
    ///
    /// Returns an error if the URL is not valid, no server answers there, or the password is wrong.
    pub async fn connect(url: &str) -> Result<Self, Error> {
        Self::connect_with(url, RedisConfig::default()).await
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
        Self::new(Connector::Server(Box::new(server)), config).await
    }

    /// Connects through the manager of the application's own [pool](bb8::Pool): with its address,
    /// user, password, certificates and connection customizer.
    ///
    /// The store opens [`connections`](RedisConfig::connections) connections of its own, which the
    /// pool's `max_size` does not count. It never uses the connections that the application checks
    /// out, so the application may use transactions, `SELECT` and blocking commands on them.
    ///
    /// # Errors
    ///
    /// Returns an error if the pool's manager cannot connect.
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
        Self::new(Connector::AppPool(AppPoolConnector::new(pool)), config).await
    }

    /// Connects to the primary that Redis Sentinel names, and follows it after a failover.
    ///
    /// `sentinels` are the URLs of some sentinels. `primary` is the name, or a URL with the name as
    /// its host: `rediss://user:password@name/0`.
    ///
    /// # Errors
    ///
    /// Returns an error if a URL is not valid, or if no sentinel names a primary that answers.
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
        Self::new(Connector::Sentinel(Box::new(sentinels)), config).await
    }

    /// Connects to a cluster. `nodes` are the URLs of some of its nodes. The user, password and TLS
    /// settings of the first URL are used for all nodes.
    ///
    /// # Errors
    ///
    /// Returns an error if a URL is not valid, or if no node answers.
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
        cluster.refresh().await?;
        Ok(Self::over(Backend::Cluster(Box::new(cluster)), &config))
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

    async fn new(connector: Connector, config: RedisConfig) -> Result<Self, Error> {
        let pool = Pool::new(connector, &config);
        pool.warm_up().await?;
        Ok(Self::over(Backend::Server(Box::new(pool), ScriptLoader::default()), &config))
    }

    fn over(backend: Backend, config: &RedisConfig) -> Self {
        Self(Arc::new(StoreShared {
            batcher: Batcher::new(backend, config.batching),
            key_names: KeyNames::new(config),
            max_log_entries: config.max_log_entries,
            test_time: TestTime::default(),
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
        let charges = charges.iter().enumerate().map(|(position, charge)| {
            self.admits_quota(charge.policy().name(), charge.quota())?;
            Ok(WireCharge::new(&self.0.key_names, position, charge))
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
            Request::Refund(receipt) => (Operation::Refund, Ok(self.wire_refund(receipt))),
        };
        match check {
            Ok(check) => {
                let (shared, test_time) = (Arc::clone(&self.0), self.0.test_time.now());
                let options = CallOptions { operation, deadline, test_time };
                let reply = async move {
                    // With a deadline there is a runtime.
                    if deadline.is_none() && Handle::try_current().is_err() {
                        return Err(Failure::NoRuntime.into());
                    }
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

impl Store for RedisStore {
    fn call(&self, request: Request<'_>) -> Answer {
        self.execute(request, None)
    }

    fn call_by(&self, request: Request<'_>, deadline: std::time::Instant) -> Answer {
        self.execute(request, Some(TimeLimit::at(deadline.into())))
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
