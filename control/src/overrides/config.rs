//! The place that keeps the overrides of a service.

use std::fmt;

use crate::{StoreConfig, StoreKind};

/// The version of this crate.
pub(super) const VERSION: &str = env!("CARGO_PKG_VERSION");

/// The place that keeps the overrides of a service. [`Overrides::connect`](super::Overrides::connect) takes it.
///
/// All instances of a service need the same place, or they miss each other's changes. So it comes from the
/// store of the [configuration](crate::Config), which counts the units too:
///
/// ```
/// use plimsoll_control::{Config, Format, Overrides, OverridesConfig};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let text = "policies.api = \"100/min\"\nrules = [{ policy = \"api\", key = \"anonymous\" }]";
/// let config = Config::from_text(text, Format::Toml)?;
/// let store = config.store();
/// let limiter = store.connect().await?;
/// let registry = config.registry().clone();
/// let overrides = Overrides::connect(OverridesConfig::of(store), registry, limiter).await?;
/// # assert!(overrides.list().is_empty());
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct OverridesConfig {
    /// The URL of the Redis server, or `None` if the store names none.
    pub(super) url: Option<String>,
    pub(super) kind: StoreKind,
    pub(super) prefix: String,
    pub(super) is_lazy: bool,
    pub(super) version: String,
    pub(super) is_observer: bool,
}

impl OverridesConfig {
    /// Creates the configuration for the place that a [store](StoreConfig) names: the server and the prefix of its keys, or
    /// the memory of this process if it counts units there. It is lazy if the store is.
    ///
    /// For a store in a cluster, behind sentinels or in regions, name the one [`server`](Self::server) that
    /// keeps overrides.
    #[must_use]
    pub fn of(store: &StoreConfig) -> Self {
        Self {
            url: store.url().map(Into::into),
            kind: store.kind(),
            prefix: store.prefix().into(),
            is_lazy: store.is_lazy(),
            version: VERSION.into(),
            is_observer: false,
        }
    }

    /// Creates the configuration of a service without a configuration file, for the server at a URL such as
    /// `redis://user:password@host:6379/0`. `prefix` is the prefix of all keys of the service: see
    /// [`RedisConfig::prefix`](plimsoll::redis::RedisConfig::prefix).
    #[must_use]
    pub fn new(url: impl Into<String>, prefix: impl Into<String>) -> Self {
        Self {
            url: Some(url.into()),
            kind: StoreKind::Server,
            prefix: prefix.into(),
            is_lazy: false,
            version: VERSION.into(),
            is_observer: false,
        }
    }

    /// Keeps the overrides on the server at this URL, instead of the server that counts units.
    #[must_use]
    pub fn server(mut self, url: impl Into<String>) -> Self {
        self.url = Some(url.into());
        self
    }

    /// Follows the overrides without being an instance of the service: for a script that makes one check. The admin page
    /// does not list it.
    #[must_use]
    pub fn observer(mut self) -> Self {
        self.is_observer = true;
        self
    }

    /// Sets the version of the program, such as `1.4.2`. The admin page of each instance shows which versions run. The
    /// default is the version of this crate. Of a longer version, the first 64 characters are shown.
    #[must_use]
    pub fn version(mut self, version: impl Into<String>) -> Self {
        self.version = version.into();
        self
    }
}

/// Prints no address and no password.
impl fmt::Debug for OverridesConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OverridesConfig").field("prefix", &self.prefix).finish_non_exhaustive()
    }
}
