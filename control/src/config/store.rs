//! The store of a configuration.

use std::fmt;

use plimsoll::{
    Error, Limiter, MemoryStore, RedisStore, Resilience, memory::MemoryConfig, redis::RedisConfig,
};
use plimsoll_regions::{Regions, RegionsConfig};

use super::{
    document::{At, Mistake},
    spec::{FileSpec, RedisSpec, RegionsSpec, ResilienceSpec, Secret, StoreSpec, Within, set},
};

/// The store of a configuration, and the [resilience](Resilience) around it.
#[derive(Clone)]
pub struct StoreConfig {
    stores: Stores,
    resilience: Resilience,
    /// The fields of the file, which are compared with the fields of a later file.
    spec: (StoreSpec, ResilienceSpec),
}

#[derive(Clone)]
enum Stores {
    Memory(MemoryConfig),
    Redis(RedisConfig),
    Regions(Box<RegionStores>),
}

/// The store of a region, and the store of all regions.
#[derive(Clone)]
struct RegionStores {
    local: RedisConfig,
    home: RedisConfig,
    config: RegionsConfig,
}

/// The kind of a store. [`StoreConfig::kind`] returns it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum StoreKind {
    /// The memory of the process.
    Memory,
    /// One Redis server.
    Server,
    /// A Redis Cluster.
    Cluster,
    /// The Redis server that sentinels name.
    Sentinels,
    /// The Redis server of this region, and the server that all regions share.
    Regions,
}

impl StoreConfig {
    pub(super) fn new(spec: &FileSpec) -> Result<Self, Mistake> {
        let resilience = spec.resilience.resilience();
        let stores = match &spec.store {
            StoreSpec { memory: Some(memory), redis: None, regions: None } => {
                Stores::Memory(memory.value.over(MemoryConfig::default()))
            }
            StoreSpec { memory: None, redis: None, regions: None } => {
                Stores::Memory(MemoryConfig::default())
            }
            StoreSpec { memory: None, redis: Some(redis), regions: None } => {
                Stores::Redis(redis.config()?)
            }
            StoreSpec { memory: None, redis: Some(redis), regions: Some(regions) } => {
                let home = regions.value.home.config()?;
                let config = config_of(&regions.value, &resilience);
                let local = redis.config()?;
                Stores::Regions(Box::new(RegionStores { local, home, config }))
            }
            StoreSpec { memory: Some(memory), .. } => {
                return Err(memory.mistake("`memory` beside another store").allowed("one store"));
            }
            StoreSpec { redis: None, regions: Some(regions), .. } => {
                return Err(regions.mistake("`regions` without `redis`, the Redis of this region"));
            }
        };
        let spec = (spec.store.clone(), spec.resilience.clone());
        Ok(Self { stores, resilience, spec })
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
        let resilience = self.resilience.clone();
        Ok(match self.stores.clone() {
            Stores::Memory(config) => {
                Limiter::with_resilience(MemoryStore::new(config), resilience)
            }
            Stores::Redis(config) => {
                Limiter::with_resilience(RedisStore::connect_with(config).await?, resilience)
            }
            Stores::Regions(stores) => {
                let RegionStores { local, home, config } = *stores;
                let of = |name: &'static str| {
                    move |error: Error| {
                        let named = Error::new(error.kind(), format!("{name}: {error}"));
                        let named = named.with_effect(error.effect());
                        named.with_place(error.place().to_owned()).with_source(error)
                    }
                };
                let local = RedisStore::connect_with(local).await.map_err(of("local"))?;
                let home = RedisStore::connect_with(home).await.map_err(of("home"))?;
                Limiter::with_resilience(Regions::new(local, home, config)?, resilience)
            }
        })
    }

    /// Returns hints on the URLs, for what is allowed and probably not meant: a database that servers do not have by
    /// default, and an `@` that other clients read differently. Hints do not contain a URL.
    #[must_use]
    pub fn hints(&self) -> Vec<String> {
        let (spec, _) = &self.spec;
        let home = spec.regions.iter().map(|regions| &regions.value.home);
        spec.redis.iter().chain(home).flat_map(|redis| redis.value.hints()).collect()
    }

    /// Returns the kind of the store.
    #[must_use]
    pub fn kind(&self) -> StoreKind {
        let (spec, _) = &self.spec;
        match &spec.redis {
            None => StoreKind::Memory,
            Some(_) if spec.regions.is_some() => StoreKind::Regions,
            Some(redis) if redis.value.cluster.is_some() => StoreKind::Cluster,
            Some(redis) if redis.value.sentinels.is_some() => StoreKind::Sentinels,
            Some(_) => StoreKind::Server,
        }
    }

    /// Returns the URL of the server, if units are counted in one Redis server. It may have a password.
    #[must_use]
    pub fn url(&self) -> Option<&str> {
        let (spec, _) = &self.spec;
        let redis = spec.redis.as_ref().filter(|_| self.kind() == StoreKind::Server)?;
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
        match &mut store.stores {
            Stores::Memory(_) => {}
            Stores::Redis(config) => *config = config.clone().lazy(is_lazy),
            Stores::Regions(stores) => {
                stores.local = stores.local.clone().lazy(is_lazy);
                stores.home = stores.home.clone().lazy(is_lazy);
            }
        }
        let (spec, _) = &mut store.spec;
        let home = spec.regions.as_mut().map(|regions| &mut regions.value.home);
        for redis in spec.redis.iter_mut().chain(home) {
            redis.value.lazy = Some(is_lazy);
        }
        store
    }

    /// Returns whether the store starts without a connection to Redis.
    #[must_use]
    pub fn is_lazy(&self) -> bool {
        let (spec, _) = &self.spec;
        spec.redis.as_ref().and_then(|redis| redis.value.lazy).unwrap_or(false)
    }

    /// Returns the store in the memory of the process, or in one server, with other servers of Redis.
    fn replaced(&self, change: impl FnOnce(&mut RedisSpec)) -> Self {
        let mut store = self.clone();
        if matches!(self.kind(), StoreKind::Memory | StoreKind::Server) {
            let (spec, _) = &mut store.spec;
            let redis = &mut spec.redis.get_or_insert_default().value;
            change(redis);
            store.stores = Stores::Redis(redis.with_settings(redis.servers()));
            spec.memory = None;
        }
        store
    }

    /// Returns the store with this resilience, instead of the resilience of the file. A tool that shows or
    /// changes units must not decide by itself while the store is slow, and waits longer than a request does.
    ///
    /// ```
    /// use std::time::Duration;
    ///
    /// use plimsoll::Resilience;
    /// use plimsoll_control::{Config, Format};
    ///
    /// let text = "policies.api = '100/min'\nrules = [{ policy = 'api', key = 'peer_ip' }]";
    /// let config = Config::from_text(text, Format::Toml)?;
    /// let patient = Resilience::none().deadline(Duration::from_secs(5));
    /// let store = config.store().with_url("redis://127.0.0.1/").with_resilience(patient);
    /// # Ok::<(), plimsoll_control::ConfigError>(())
    /// ```
    #[must_use]
    pub fn with_resilience(&self, resilience: Resilience) -> Self {
        let mut store = Self { resilience: resilience.clone(), ..self.clone() };
        if let Stores::Regions(stores) = &mut store.stores {
            stores.config = stores.config.clone().resilience(resilience);
        }
        store
    }

    /// Returns the prefix of the keys in Redis.
    #[must_use]
    pub fn prefix(&self) -> &str {
        let (spec, _) = &self.spec;
        let prefix = spec.redis.as_ref().and_then(|redis| redis.value.prefix.as_ref());
        prefix.map_or("plim", |prefix| &prefix.value)
    }
}

fn secrets(texts: &[String]) -> Vec<At<Secret>> {
    texts.iter().map(|text| At { value: Secret(text.clone()), span: 0..0 }).collect()
}

fn config_of(spec: &RegionsSpec, resilience: &Resilience) -> RegionsConfig {
    let RegionsSpec { count, share_percent, home_deadline, .. } = spec;
    let to = RegionsConfig::new(count.get()).resilience(resilience.clone());
    let to = set(to, share_percent.map(Within::get), RegionsConfig::share_percent);
    set(to, home_deadline.map(Into::into), RegionsConfig::home_deadline)
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

impl PartialEq for StoreConfig {
    fn eq(&self, other: &Self) -> bool {
        self.spec == other.spec
    }
}

impl fmt::Debug for StoreConfig {
    /// Writes what the file says, without secrets.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (store, resilience) = &self.spec;
        let mut f = f.debug_struct("StoreConfig");
        f.field("store", store).field("resilience", resilience).finish()
    }
}
