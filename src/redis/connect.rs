//! The constructors of the shared store: a server, a pool of the application, Sentinel or a cluster.

#[cfg(feature = "bb8")]
use bb8_redis::RedisConnectionManager;

#[cfg(feature = "bb8")]
use super::connection::AppPoolConnector;
use super::{
    RedisConfig, RedisStore,
    backend::Backend,
    batch::Batcher,
    cluster::Cluster,
    connection::{Connector, Pool, SentinelConnector, ServerConnector},
    error::Failure,
    key_name::KeyNames,
    script::ScriptLoader,
    startup::{Startup, Trial},
};
use crate::{error::Error, runtime::runtime_with_timer};

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
    /// [fallback](crate::Resilience::fallback).
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
}

fn server_backend(connector: Connector, config: &RedisConfig) -> Backend {
    Backend::Server(Box::new(Pool::new(connector, config)), ScriptLoader::default())
}

fn parts(backend: Backend, config: &RedisConfig) -> (Batcher, KeyNames) {
    (Batcher::new(backend, config.batching), KeyNames::new(config))
}
