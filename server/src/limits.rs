//! The limits of the service: its files, the policies in them, and the store that counts.

use plimsoll::Limiter;
use plimsoll_control::{
    Config, Format, Offenders, Overrides, OverridesConfig, Registry, StoreConfig, StoreKind,
};

use crate::{
    envoy::{Envoy, EnvoyConfig},
    files::{self, LimitsError},
    settings::{RedisServers, Settings},
};

/// The limits that are in force without [a file](crate::settings::Settings::configs).
pub const DEFAULT_CONFIG: &str = include_str!("../config/default.toml");

/// The files with limits, and the store that they name.
pub(crate) struct Limits {
    /// At least one. The admin page shows the first.
    pub(crate) configs: Vec<Config>,
    pub(crate) registry: Registry,
    pub(crate) store: StoreConfig,
    /// The files of envoyproxy/ratelimit.
    pub(crate) envoy: Option<EnvoyConfig>,
    /// The warnings for the operator. The service starts all the same.
    pub(crate) warnings: Vec<String>,
}

impl Limits {
    /// Reads the files of the [settings](Settings).
    ///
    /// # Errors
    ///
    /// Returns an error if a file cannot be read or has a mistake, or if two files name different stores.
    pub(crate) fn read(settings: &Settings) -> Result<Self, LimitsError> {
        let registry = Registry::default();
        let mut warnings = settings.warnings.clone();
        warnings.extend(files::warning(settings));
        let envoy = if settings.envoy_configs.is_empty() {
            None
        } else {
            Some(EnvoyConfig::load(&settings.envoy_configs, settings.envoy.clone())?)
        };
        for field in envoy.iter().flat_map(EnvoyConfig::ignored_fields) {
            warnings.push(format!("`{field}` of the files for Envoy has no effect"));
        }
        let configs = match files::limits(settings)? {
            // Beside files of envoyproxy/ratelimit, there are no policies by default.
            files if files.is_empty() => {
                let text = if envoy.is_none() { DEFAULT_CONFIG } else { "policies = {}" };
                vec![Config::from_text(text, Format::Toml)?]
            }
            files => files
                .iter()
                .map(|file| Config::from_path_with(file, registry.clone()))
                .collect::<Result<_, _>>()?,
        };
        let registry = configs[0].registry().clone();
        // The service asks whether a policy is switched on, so the admin page can switch it off.
        for registered in registry.policies() {
            drop(registered.switch());
        }
        let store = store(&configs, settings)?;
        Ok(Self { configs, registry, store, envoy, warnings })
    }

    /// Returns the rate limit service of the files of envoyproxy/ratelimit, if there are any.
    ///
    /// # Errors
    ///
    /// Returns an error if a policy of those files has the name of another one.
    pub(crate) fn envoy(
        &self,
        limiter: &Limiter,
        offenders: &Offenders,
    ) -> Result<Option<Envoy>, LimitsError> {
        let Some(config) = self.envoy.clone() else { return Ok(None) };
        let registry = self.registry.clone();
        Ok(Some(Envoy::new(config, limiter.clone(), registry, offenders.clone())?))
    }

    /// Returns whether other instances share the store.
    pub(crate) fn is_shared(&self) -> bool {
        self.store.kind() != StoreKind::Memory
    }

    /// Follows changes of the files.
    pub(crate) fn watch(&self) {
        self.configs.iter().for_each(Config::watch);
    }

    /// Connects to the [overrides](Overrides) of operators.
    ///
    /// # Errors
    ///
    /// Returns an error if the store of overrides cannot be reached, and need not be at the start.
    pub(crate) async fn overrides(
        &self,
        limiter: &Limiter,
        settings: &Settings,
    ) -> Result<Overrides, LimitsError> {
        let registry = self.registry.clone();
        let limiter = limiter.clone();
        let mut config = OverridesConfig::of(&self.store);
        match &settings.overrides_redis {
            Some(url) => config = config.server(url),
            None if self.is_shared() && self.store.url().is_none() => {
                let kind = self.store.kind();
                tracing::warn!(
                    target: "plimsoll",
                    "overrides of this instance are not shared: the store is {kind}, and overrides \
                     are kept by one Redis server, which --overrides-redis names"
                );
                return Ok(Overrides::in_memory(registry, limiter));
            }
            None => {}
        }
        Ok(Overrides::connect(config, registry, limiter).await?)
    }
}

/// Returns the store: of the [settings](Settings), with the fields of the files.
fn store(configs: &[Config], settings: &Settings) -> Result<StoreConfig, LimitsError> {
    let default = Config::from_text("policies = {}", Format::Toml)?.store().clone();
    let mut stores = configs.iter().map(Config::store).filter(|store| **store != default);
    let store = stores.next().unwrap_or(&default);
    if stores.any(|other| other != store) {
        return Err("two files have different stores or resilience, and there is one store".into());
    }
    let replaced = match &settings.redis {
        None => store.clone(),
        Some(RedisServers::Server(url)) => store.with_url(url),
        Some(RedisServers::Cluster(nodes)) => store.with_cluster(nodes),
        Some(RedisServers::Sentinels { urls, primary }) => store.with_sentinels(urls, primary),
    };
    if settings.redis.is_some() && replaced == *store && store.kind() != StoreKind::Server {
        let kind = store.kind();
        return Err(
            format!("the file names {kind}, which a flag or a variable cannot replace").into()
        );
    }
    Ok(match settings.is_redis_lazy {
        Some(is_lazy) => replaced.with_lazy(is_lazy),
        None => replaced,
    })
}
