//! The store of a configuration.

use std::{fmt, time::Duration};

use plimsoll::{Error, Limiter, MemoryStore, RedisStore, Resilience};
use plimsoll_regions::Regions;

use super::{
    document::{At, Mistake},
    spec::{FileSpec, RedisSpec, ResilienceSpec, Secret, StoreSpec},
};

/// The shortest deadline of a program that makes one check.
const ONE_CHECK: Duration = Duration::from_secs(2);

/// The store of a configuration, and the resilience around it.
#[derive(Clone, PartialEq)]
pub struct StoreConfig {
    store: StoreSpec,
    resilience: ResilienceSpec,
    is_for_one_check: bool,
}

/// The kind of a store. [`StoreConfig::kind`] returns it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum StoreKind {
    /// The memory of the process: a [`MemoryStore`](plimsoll::MemoryStore).
    Memory,
    /// One Redis server: [`RedisConfig::url`](plimsoll::redis::RedisConfig::url).
    Server,
    /// A Redis Cluster: [`RedisConfig::cluster`](plimsoll::redis::RedisConfig::cluster).
    Cluster,
    /// The Redis server that sentinels name: [`RedisConfig::sentinel`](plimsoll::redis::RedisConfig::sentinel).
    Sentinels,
    /// The Redis server of this region, and the Redis server that all regions share.
    Regions,
}

impl StoreConfig {
    pub(super) fn new(spec: &FileSpec) -> Result<Self, Mistake> {
        match &spec.store {
            StoreSpec { memory: Some(memory), redis, regions }
                if redis.is_some() || regions.is_some() =>
            {
                return Err(memory.mistake("`memory` beside another store").allowed("one store"));
            }
            StoreSpec { redis: None, regions: Some(regions), .. } => {
                return Err(regions.mistake("`regions` without `redis`, the store of this region"));
            }
            StoreSpec { redis, regions, .. } => {
                let home = regions.iter().map(|regions| &regions.value.home);
                redis.iter().chain(home).try_for_each(At::check)?;
            }
        }
        let resilience = spec.resilience.clone();
        Ok(Self { store: spec.store.clone(), resilience, is_for_one_check: false })
    }

    /// Connects to the store, and returns a [limiter](Limiter) over it.
    ///
    /// ```
    /// use plimsoll_control::{Config, Format};
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let text = r#"
    ///     policies.api = "100/min"
    ///     rules = [{ policy = "api", key = "peer_ip" }]
    ///     store.memory.max_keys = 50_000
    /// "#;
    /// let config = Config::from_text(text, Format::Toml)?;
    /// let limiter = config.store().connect().await?;
    /// let layer = config.layer(&limiter)?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// Returns an error if the store cannot be reached, and is not `lazy`. With regions, it says which of the two stores
    /// that is: `local`, the store of this region, or `home`.
    pub async fn connect(&self) -> Result<Limiter, Error> {
        let resilience = self.resilience();
        let Some(redis) = &self.store.redis else {
            let memory = self.store.memory.as_ref().map(|memory| memory.value.config());
            let store = MemoryStore::new(memory.unwrap_or_default());
            return Ok(Limiter::with_resilience(store, resilience));
        };
        let Some(At { value: regions, .. }) = &self.store.regions else {
            let store = RedisStore::connect_with(redis.value.config()).await?;
            return Ok(Limiter::with_resilience(store, resilience));
        };
        let local = RedisStore::connect_with(redis.value.config()).await;
        let local = local.map_err(|error| named("local", error))?;
        let home = RedisStore::connect_with(regions.home.value.config()).await;
        let home = home.map_err(|error| named("home", error))?;
        let regions = Regions::new(local, home, regions.config(resilience.clone()))?;
        Ok(Limiter::with_resilience(regions, resilience))
    }

    fn resilience(&self) -> Resilience {
        let resilience = self.resilience.resilience();
        if !self.is_for_one_check {
            return resilience;
        }
        let deadline = self.resilience.deadline.map_or(ONE_CHECK, Into::into);
        // A limiter that never decides by itself is not counted either.
        resilience.without_fallback().deadline(deadline.max(ONE_CHECK))
    }

    /// Returns hints on the URLs, for what is allowed and probably not meant: a database that servers do not have by
    /// default, and an `@` that other clients read differently. Hints do not contain a URL.
    #[must_use]
    pub fn hints(&self) -> Vec<String> {
        let home = self.store.regions.iter().map(|regions| &regions.value.home);
        self.store.redis.iter().chain(home).flat_map(|redis| redis.value.hints()).collect()
    }

    /// Returns the kind of the store.
    #[must_use]
    pub fn kind(&self) -> StoreKind {
        match &self.store.redis {
            None => StoreKind::Memory,
            Some(_) if self.store.regions.is_some() => StoreKind::Regions,
            Some(redis) if redis.value.cluster.is_some() => StoreKind::Cluster,
            Some(redis) if redis.value.sentinels.is_some() => StoreKind::Sentinels,
            Some(_) => StoreKind::Server,
        }
    }

    /// Returns the URL of the server, if units are counted in one Redis server. It may have a password.
    #[must_use]
    pub fn url(&self) -> Option<&str> {
        let redis = self.store.redis.as_ref().filter(|_| self.kind() == StoreKind::Server)?;
        Some(&redis.value.url.as_ref()?.value.0)
    }

    /// Returns the store with the Redis server at this URL, instead of another server or of memory. All other
    /// settings stay as they are. A cluster, sentinels and regions are not replaced.
    ///
    /// ```
    /// use plimsoll_control::{Config, Format};
    ///
    /// let text = "policies.api = '100/min'\nrules = [{ policy = 'api', key = 'peer_ip' }]";
    /// let config = Config::from_text(text, Format::Toml)?;
    /// assert_eq!(config.store().url(), None);
    /// let store = config.store().with_url("redis://127.0.0.1/");
    /// assert_eq!(store.url(), Some("redis://127.0.0.1/"));
    /// # Ok::<(), plimsoll_control::ConfigError>(())
    /// ```
    #[must_use]
    pub fn with_url(&self, url: &str) -> Self {
        let url = At { value: Secret(url.to_owned()), span: 0..0 };
        self.replaced(|redis| redis.url = Some(url))
    }

    /// Returns the store with the Redis Cluster that has these nodes, instead of one server or of memory. All
    /// other settings stay as they are. A cluster, sentinels and regions are not replaced.
    #[must_use]
    pub fn with_cluster(&self, nodes: &[String]) -> Self {
        self.replaced(|redis| (redis.url, redis.cluster) = (None, Some(secrets(nodes))))
    }

    /// Returns the store with the Redis server that these sentinels watch under the name `primary`, instead of
    /// one server or of memory. All other settings stay as they are. A cluster, sentinels and regions are not
    /// replaced.
    #[must_use]
    pub fn with_sentinels(&self, sentinels: &[String], primary: &str) -> Self {
        self.replaced(|redis| {
            (redis.url, redis.sentinels) = (None, Some(secrets(sentinels)));
            redis.primary = Some(At { value: Secret(primary.to_owned()), span: 0..0 });
        })
    }

    /// Returns the store that starts without a connection to Redis if `is_lazy`, and connects in the
    /// background. Both stores of a region are. A store in memory stays as it is.
    #[must_use]
    pub fn with_lazy(&self, is_lazy: bool) -> Self {
        let mut store = self.clone();
        let home = store.store.regions.as_mut().map(|regions| &mut regions.value.home);
        for redis in store.store.redis.iter_mut().chain(home) {
            redis.value.lazy = Some(is_lazy);
        }
        store
    }

    /// Returns the store for a program that makes one check and ends, such as a script. The program does not count as an
    /// instance, and never decides by itself: there is no fallback. It connects at once, and waits for the store for 2 s
    /// at least.
    #[must_use]
    pub fn for_one_check(&self) -> Self {
        let mut store = self.with_lazy(false);
        store.is_for_one_check = true;
        store
    }

    /// Returns whether the store starts without a connection to Redis.
    #[must_use]
    pub fn is_lazy(&self) -> bool {
        self.store.redis.as_ref().and_then(|redis| redis.value.lazy).unwrap_or(false)
    }

    /// Returns the store in the memory of the process, or in one server, with other servers of Redis.
    fn replaced(&self, change: impl FnOnce(&mut RedisSpec)) -> Self {
        let mut store = self.clone();
        if matches!(self.kind(), StoreKind::Memory | StoreKind::Server) {
            store.store.memory = None;
            change(&mut store.store.redis.get_or_insert_default().value);
        }
        store
    }

    /// Returns the prefix of the keys in Redis.
    #[must_use]
    pub fn prefix(&self) -> &str {
        let prefix = self.store.redis.as_ref().and_then(|redis| redis.value.prefix.as_ref());
        prefix.map_or("plim", |prefix| &prefix.value)
    }
}

fn secrets(texts: &[String]) -> Vec<At<Secret>> {
    texts.iter().map(|text| At { value: Secret(text.clone()), span: 0..0 }).collect()
}

/// Returns the error of one of the two stores of a region.
fn named(name: &str, error: Error) -> Error {
    let named = Error::new(error.kind(), format!("{name}: {error}"));
    named.with_effect(error.effect()).with_source(error)
}

impl fmt::Display for StoreKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Memory => "the memory of the process",
            Self::Server => "one Redis server",
            Self::Cluster => "a Redis Cluster",
            Self::Sentinels => "Redis Sentinel",
            Self::Regions => "regions",
        })
    }
}

impl fmt::Debug for StoreConfig {
    /// Writes what the file says, without secrets.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut f = f.debug_struct("StoreConfig");
        f.field("store", &self.store).field("resilience", &self.resilience).finish()
    }
}
