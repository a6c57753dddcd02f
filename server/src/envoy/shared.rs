//! The parts that all clones of the service share: the configuration in force, and its reload.

use std::{
    fmt,
    sync::{Arc, Mutex, PoisonError},
};

use arc_swap::ArcSwap;
use plimsoll::Limiter;
use plimsoll_control::{Registry, admin::Activity};

use super::{
    config::{EnvoyConfig, EnvoyConfigError, Source},
    stats::Stats,
};

/// The parts that all clones share.
pub(super) struct Shared {
    pub(super) config: ArcSwap<EnvoyConfig>,
    pub(super) limiter: Limiter,
    pub(super) stats: Stats,
    /// The decisions that the admin page shows.
    pub(super) activity: Option<Activity>,
    registry: Option<Registry>,
    pub(super) reload: Mutex<Reload>,
}

/// The state of the last reload.
#[derive(Default)]
pub(super) struct Reload {
    /// The texts that were read last. A file may be half written, so texts are taken once they stay.
    seen: Option<Vec<Source>>,
    /// The texts that were read last and have a mistake. [`Shared::poll`] does not parse them again.
    rejected: Option<Vec<Source>>,
    /// The error that was reported last.
    pub(super) error: Option<EnvoyConfigError>,
}

impl Shared {
    /// Creates the parts with a configuration that is valid.
    pub(super) fn new(
        config: EnvoyConfig,
        limiter: Limiter,
        registry: Option<Registry>,
        activity: Option<Activity>,
    ) -> Self {
        let (stats, reload) = (Stats::new(), Mutex::default());
        stats.config_load_success.increment(1);
        Self { config: ArcSwap::from_pointee(config), limiter, stats, activity, registry, reload }
    }

    /// Reads the files again, and returns whether they have changed.
    ///
    /// # Errors
    ///
    /// Returns an error if a file cannot be read or has a mistake. The configuration stays in force.
    pub(super) fn reload(&self) -> Result<bool, EnvoyConfigError> {
        let config = self.config.load_full();
        let sources = config.sources_now();
        self.apply(&config, sources)
    }

    /// Reads the files again, if they have stayed the same since the last call, and were not rejected.
    pub(super) fn poll(&self) {
        let config = self.config.load_full();
        let sources = config.sources_now();
        let seen = sources.as_ref().ok().cloned();
        let is_new = {
            let mut reload = self.reload.lock().unwrap_or_else(PoisonError::into_inner);
            let is_settled = reload.seen == seen;
            let is_rejected = seen.is_some() && reload.rejected == seen;
            reload.seen = seen;
            is_settled && !is_rejected
        };
        if is_new {
            // An error is reported where it occurs.
            let _ = self.apply(&config, sources);
        }
    }

    fn apply(
        &self,
        config: &EnvoyConfig,
        sources: Result<Vec<Source>, EnvoyConfigError>,
    ) -> Result<bool, EnvoyConfigError> {
        if !config.has_files() {
            return Ok(false);
        }
        let mut rejected = None;
        let read = sources.and_then(|sources| match config.is_of(&sources) {
            true => Ok(None),
            false => {
                let read = config.with_sources(sources.clone());
                rejected = read.is_err().then_some(sources);
                read.map(Some)
            }
        });
        let read = read.and_then(|new| match (&new, &self.registry) {
            (Some(config), Some(registry)) => config.register(registry).map(|()| new),
            _ => Ok(new),
        });
        let mut reload = self.reload.lock().unwrap_or_else(PoisonError::into_inner);
        reload.rejected = rejected;
        match read {
            Ok(None) => {
                reload.error = None;
                Ok(false)
            }
            Ok(Some(new)) => {
                reload.error = None;
                let domains = new.domains();
                self.config.store(Arc::new(new));
                self.stats.config_load_success.increment(1);
                tracing::info!(domains, "the limits for Envoy were read again");
                Ok(true)
            }
            Err(error) => {
                if reload.error.as_ref() != Some(&error) {
                    self.stats.config_load_error.increment(1);
                    tracing::error!("the limits for Envoy stay as they are\n{error}");
                    reload.error = Some(error.clone());
                }
                Err(error)
            }
        }
    }
}

impl fmt::Debug for Shared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Shared")
            .field("config", &self.config.load())
            .field("limiter", &self.limiter)
            .finish_non_exhaustive()
    }
}
