//! The parts that all clones of the service share: the configuration in force, and its reload.

use std::{
    fmt,
    sync::{Arc, Mutex, PoisonError},
};

use arc_swap::ArcSwap;
use plimsoll::Limiter;
use plimsoll_control::{Registry, admin::Activity};

use super::{
    config::{EnvoyConfig, EnvoyConfigError, Files},
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
    /// The files that were read last. A file may be half written, so files are taken once they stay.
    seen: Option<Files>,
    /// The files that were read last and have a mistake. [`Shared::poll`] does not parse them again.
    rejected: Option<Files>,
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
        let files = config.files_now();
        self.apply(&config, files)
    }

    /// Reads the files again, if they have stayed the same since the last call, and were not rejected.
    pub(super) fn poll(&self) {
        let config = self.config.load_full();
        let files = config.files_now();
        let seen = files.as_ref().ok().cloned();
        let is_new = {
            let mut reload = self.reload.lock().unwrap_or_else(PoisonError::into_inner);
            let is_settled = reload.seen == seen;
            let is_rejected = seen.is_some() && reload.rejected == seen;
            reload.seen = seen;
            is_settled && !is_rejected
        };
        if is_new {
            // An error is reported where it occurs.
            let _ = self.apply(&config, files);
        }
    }

    fn apply(
        &self,
        config: &EnvoyConfig,
        files: Result<Files, EnvoyConfigError>,
    ) -> Result<bool, EnvoyConfigError> {
        if !config.has_files() {
            return Ok(false);
        }
        let mut rejected = None;
        let read = files.and_then(|files| match config.is_of(&files) {
            true => Ok(None),
            false => {
                let read = config.with_files(files.clone());
                rejected = read.is_err().then_some(files);
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
                self.report(config, &new);
                self.config.store(Arc::new(new));
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

    /// Reports that a configuration comes into force, and which domains it keeps, once for each change of them.
    fn report(&self, before: &EnvoyConfig, new: &EnvoyConfig) {
        let kept: Vec<_> = new.kept_domains().collect();
        self.stats.config_load_success.increment(1);
        self.stats.kept_domains.set(kept.len() as f64);
        tracing::info!(domains = new.domains(), "the limits for Envoy were read again");
        if !kept.is_empty() && !before.kept_domains().eq(kept.iter().copied()) {
            tracing::warn!(
                "no file has the limits for Envoy of these domains any more, and they stay in force until \
                 a restart: {}. To remove limits, leave a file with the `domain` and `descriptors: []`, \
                 or set `remove-domains`",
                kept.join(", ")
            );
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
