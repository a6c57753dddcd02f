//! The limiter of a limits file, for the commands that charge a key or look at it.

use plimsoll::{Charge, Key, Limiter, OnFailure};
use plimsoll_control::{Config, Overrides, OverridesConfig, Registered, StoreKind};
use tokio::runtime::{Builder, Runtime};

use crate::{args::Limits, client::Failure};

/// The limiter that the instances of a service have too: the same policies, the same store, the same overrides.
pub(crate) struct SharedLimiter {
    pub(crate) limiter: Limiter,
    config: Config,
    /// Follows the overrides while a command waits.
    _overrides: Option<Overrides>,
}

impl SharedLimiter {
    /// Connects to the store of a file, and applies the overrides in force.
    ///
    /// # Errors
    ///
    /// Returns an error if the file has a mistake or a store in memory, or if the store cannot be reached.
    pub(crate) async fn connect(limits: &Limits) -> Result<Self, Failure> {
        let config = Config::from_path(&limits.file.path).map_err(Failure::of)?;
        let of_file = config.store().for_one_check();
        let place = match &limits.redis {
            Some(url) => of_file.with_url(url),
            None => of_file,
        };
        if place.kind() == StoreKind::Memory {
            return Err(Failure::new(
                "the file names no store that processes share, allowed is `store.redis` in the file, or --redis",
            ));
        }
        let limiter = place.connect().await.map_err(Failure::of)?;
        let overrides = match (&limits.overrides_redis, place.kind()) {
            (Some(url), _) => Some(OverridesConfig::of(&place).server(url)),
            (None, StoreKind::Server) => Some(OverridesConfig::of(&place)),
            // Such a service has overrides only if it names their server.
            (None, _) => None,
        };
        let followed = match overrides {
            Some(overrides) => {
                let registry = config.registry().clone();
                let overrides = overrides.observer();
                let followed = Overrides::connect(overrides, registry, limiter.clone()).await;
                Some(followed.map_err(Failure::of)?)
            }
            None => None,
        };
        Ok(Self { limiter, config, _overrides: followed })
    }

    /// Returns all policies.
    pub(crate) fn policies(&self) -> Vec<Registered> {
        self.config.registry().policies()
    }

    /// Returns the policy of this name.
    pub(crate) fn policy(&self, name: &str) -> Result<Registered, Failure> {
        let registry = self.config.registry();
        registry.get(name).ok_or_else(|| {
            let known = registry.policies();
            let known: Vec<_> = known.iter().map(|it| it.policy().name()).collect();
            Failure::new(&format!("there is no policy {name:?}, there are: {}", known.join(", ")))
        })
    }

    /// Gives units that were taken in bulk back to the store.
    pub(crate) async fn close(&self) {
        // They come back by themselves, later.
        let _ = self.limiter.close().await;
    }
}

/// Returns a charge that is never decided without the store: a process that makes one check knows nothing.
pub(crate) fn charge(registered: &Registered, key: Key, cost: u64) -> Charge<'_> {
    registered.policy().charge(key, cost).with_on_failure(OnFailure::Deny)
}

/// Creates the runtime of a command that connects to a store.
pub(crate) fn runtime() -> Result<Runtime, Failure> {
    Builder::new_current_thread().enable_all().build().map_err(Failure::of)
}
