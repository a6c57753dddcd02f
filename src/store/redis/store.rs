//! The shared store: its constructors and the requests that it answers.

use std::sync::Arc;

use bb8_redis::RedisConnectionManager;

use super::{
    RedisConfig,
    backend::Backend,
    batch::Calls,
    cluster::Cluster,
    connection::{Connector, Pool, SentinelConnector, ServerConnector},
    error::Failure,
    key_name::Naming,
    script::Loading,
    test_time::TestTime,
    wire::{Asked, Operation},
};
use crate::{
    error::Error,
    policy::{Charge, Policy},
    quota::{Algorithm, Quota},
    store::{Answer, Request, Store},
};

#[doc = include_str!("../../../docs/redis.md")]
#[derive(Debug, Clone)]
pub struct RedisStore(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    calls: Calls,
    naming: Naming,
    max_log_entries: u64,
    test_time: TestTime,
}

impl RedisStore {
    /// A store at a URL: `redis://[user[:password]@]host[:port][/db]`, `rediss://` for TLS, or
    /// `unix:///path[?user=..&pass=..&db=..]`. Connects, to see that it works.
    ///
    /// # Errors
    ///
    /// If the URL is not valid, nobody answers there, or the password is wrong.
    pub async fn connect(url: &str) -> Result<Self, Error> {
        Self::connect_with(url, RedisConfig::default()).await
    }

    /// As [`connect`](Self::connect), with another configuration.
    ///
    /// # Errors
    ///
    /// As [`connect`](Self::connect), or if a value of the configuration is not valid.
    pub async fn connect_with(url: &str, config: RedisConfig) -> Result<Self, Error> {
        config.validate()?;
        let server = ServerConnector::from_url(url, &config).map_err(Failure::ServerError)?;
        Self::over(Connector::Server(Box::new(server)), config).await
    }

    /// A store that connects as the application's own pool does: with its address, user, password,
    /// certificates and connection customizer.
    ///
    /// It opens [`connections`](RedisConfig::connections) connections of its own through the pool's
    /// manager, beside those of the pool: its `max_size` neither counts nor limits them. None is
    /// shared with the application, which may use a transaction, `SELECT` or a blocking command on
    /// what it checks out; and no check waits for one that the application holds.
    ///
    /// # Errors
    ///
    /// If the pool's manager cannot connect.
    pub async fn from_pool(pool: bb8::Pool<RedisConnectionManager>) -> Result<Self, Error> {
        Self::from_pool_with(pool, RedisConfig::default()).await
    }

    /// As [`from_pool`](Self::from_pool), with another configuration. Its certificates do not
    /// matter: the pool has its own.
    ///
    /// # Errors
    ///
    /// As [`from_pool`](Self::from_pool), or if a value of the configuration is not valid.
    pub async fn from_pool_with(
        pool: bb8::Pool<RedisConnectionManager>,
        config: RedisConfig,
    ) -> Result<Self, Error> {
        config.validate()?;
        let response_timeout = config.response_timeout;
        Self::over(Connector::Bb8 { pool, response_timeout }, config).await
    }

    /// A store over the primary that some sentinels know by a name. `primary` is that name, or a
    /// URL with it as the host: `rediss://user:password@name/0`.
    ///
    /// # Errors
    ///
    /// If a URL is not valid, or no sentinel names a primary that answers.
    pub async fn sentinel<S: Into<String>>(
        sentinels: impl IntoIterator<Item = S>,
        primary: &str,
    ) -> Result<Self, Error> {
        Self::sentinel_with(sentinels, primary, RedisConfig::default()).await
    }

    /// As [`sentinel`](Self::sentinel), with another configuration.
    ///
    /// # Errors
    ///
    /// As [`sentinel`](Self::sentinel), or if a value of the configuration is not valid.
    pub async fn sentinel_with<S: Into<String>>(
        sentinels: impl IntoIterator<Item = S>,
        primary: &str,
        config: RedisConfig,
    ) -> Result<Self, Error> {
        config.validate()?;
        let sentinels: Vec<String> = sentinels.into_iter().map(Into::into).collect();
        let sentinels =
            SentinelConnector::new(&sentinels, primary, &config).map_err(Failure::ServerError)?;
        Self::over(Connector::Sentinel(Box::new(sentinels)), config).await
    }

    /// A store over a cluster, of which some nodes are given by their URLs. The user, password and
    /// TLS of the first are used for all.
    ///
    /// # Errors
    ///
    /// If a URL is not valid, or no node answers.
    pub async fn cluster<S: Into<String>>(
        nodes: impl IntoIterator<Item = S>,
    ) -> Result<Self, Error> {
        Self::cluster_with(nodes, RedisConfig::default()).await
    }

    /// As [`cluster`](Self::cluster), with another configuration.
    ///
    /// # Errors
    ///
    /// As [`cluster`](Self::cluster), or if a value of the configuration is not valid.
    pub async fn cluster_with<S: Into<String>>(
        nodes: impl IntoIterator<Item = S>,
        config: RedisConfig,
    ) -> Result<Self, Error> {
        config.validate()?;
        let nodes: Vec<String> = nodes.into_iter().map(Into::into).collect();
        let cluster = Cluster::new(&nodes, &config).map_err(Failure::ServerError)?;
        cluster.refresh().await?;
        Ok(Self::new(Backend::Cluster(Box::new(cluster)), &config))
    }

    /// Whether this store takes the policy. A [`SlidingLog`](Algorithm::SlidingLog) is limited to
    /// [`max_log_entries`](RedisConfig::max_log_entries): a longer one would keep the server busy.
    ///
    /// Ask when the program starts; a check under a policy that is not taken fails the same way.
    ///
    /// # Errors
    ///
    /// If the log could become too long. `SlidingBuckets` counts any limit in little space.
    pub fn admits(&self, policy: &Policy) -> Result<(), Error> {
        self.admits_quota(policy.name(), &policy.quota())
    }

    /// The same store, deciding at the time of this clock: for tests. Keys then live for a day.
    #[cfg(feature = "test-util")]
    #[doc(hidden)]
    #[must_use]
    pub fn with_test_clock(self, clock: impl crate::clock::Clock) -> Self {
        let test_time = TestTime(Some(Arc::new(clock)));
        match Arc::try_unwrap(self.0) {
            Ok(shared) => Self(Arc::new(Shared { test_time, ..shared })),
            Err(_) => panic!("set the clock before the store is shared"),
        }
    }

    async fn over(connector: Connector, config: RedisConfig) -> Result<Self, Error> {
        let pool = Pool::new(connector, &config);
        pool.warm_up().await?;
        Ok(Self::new(Backend::One(Box::new(pool), Loading::default()), &config))
    }

    fn new(backend: Backend, config: &RedisConfig) -> Self {
        Self(Arc::new(Shared {
            calls: Calls::new(backend, config.coalescing),
            naming: Naming::new(config),
            max_log_entries: config.max_log_entries,
            test_time: TestTime::default(),
        }))
    }

    fn admits_quota(&self, name: &str, quota: &Quota) -> Result<(), Error> {
        let most = self.0.max_log_entries;
        if quota.algorithm() != Algorithm::SlidingLog || quota.limit() <= most {
            return Ok(());
        }
        let allowed = format!(
            "1 to {most} for a sliding log in Redis: count with Algorithm::SlidingBuckets(n) \
             instead (exact too, units come back up to 1/n of the window late), or raise \
             RedisConfig::max_log_entries"
        );
        Err(Error::invalid(&format!("limit of policy {name}"), quota.limit(), allowed))
    }

    fn asked(&self, charges: &[Charge<'_>]) -> Result<Vec<Asked>, Error> {
        let charges = charges.iter().enumerate().map(|(position, charge)| {
            self.admits_quota(charge.policy().name(), charge.quota())?;
            Ok(Asked::charge(&self.0.naming, position, charge))
        });
        charges.collect()
    }
}

impl Store for RedisStore {
    fn call(&self, request: Request<'_>) -> Answer {
        let (operation, asked) = match request {
            Request::Acquire(charges) => (Operation::Acquire, self.asked(charges)),
            Request::Peek(charges) => (Operation::Peek, self.asked(charges)),
            Request::Force(charges) => (Operation::Force, self.asked(charges)),
            Request::Reset(charges) => (Operation::Reset, self.asked(charges)),
            Request::Refund(receipt) => {
                let lines = receipt.lines().iter().enumerate();
                let lines = lines.map(|(at, spent)| Asked::refund(&self.0.naming, at, spent));
                (Operation::Refund, Ok(lines.collect()))
            }
        };
        match asked {
            Ok(asked) => {
                let (shared, now) = (Arc::clone(&self.0), self.0.test_time.now());
                Answer::pending(async move { shared.calls.decide(operation, asked, now).await })
            }
            Err(error) => Answer::ready(Err(error)),
        }
    }
}
