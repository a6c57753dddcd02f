//! The handle of the service.

use std::{
    fmt,
    sync::{Arc, Mutex, PoisonError},
};

use arc_swap::ArcSwap;
use axum::Router;
use plimsoll::Limiter;
use plimsoll_control::{Registry, admin::Activity};

use super::{
    config::{EnvoyConfig, EnvoyConfigError, Source},
    debug,
    grpc::EnvoyGrpc,
    service::EnvoyService,
    stats::Stats,
    watch::EnvoyWatch,
};

/// The rate limit service for Envoy. Clones share the configuration that is in force.
///
/// ```no_run
/// use plimsoll::Limiter;
/// use plimsoll_server::envoy::{Envoy, EnvoyConfig};
/// use tonic::service::Routes;
///
/// # fn serve() -> Result<(), Box<dyn std::error::Error>> {
/// let envoy = Envoy::new(EnvoyConfig::load(["/etc/ratelimit"])?, Limiter::in_memory());
/// let watch = envoy.watch(); // a change of the files is in force within a second, until this is dropped
/// let grpc = Routes::new(envoy.grpc()).into_axum_router();
/// let debug = envoy.debug_router();
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Envoy(Arc<Shared>);

/// The parts that all clones share.
pub(super) struct Shared {
    pub(super) config: ArcSwap<EnvoyConfig>,
    pub(super) limiter: Limiter,
    pub(super) stats: Stats,
    /// The decisions that the admin page shows.
    pub(super) activity: Option<Activity>,
    registry: Option<Registry>,
    reload: Mutex<Reload>,
}

/// The state of the last reload.
#[derive(Default)]
struct Reload {
    /// The texts that were read last. A file may be half written, so texts are taken once they stay.
    seen: Option<Vec<Source>>,
    /// The texts that were read last and have a mistake. [`Envoy::poll`] does not parse them again.
    rejected: Option<Vec<Source>>,
    /// The error that was reported last.
    error: Option<EnvoyConfigError>,
}

impl Envoy {
    /// Creates the service with a configuration, over a limiter.
    #[must_use]
    pub fn new(config: EnvoyConfig, limiter: Limiter) -> Self {
        Self::with(config, limiter, None, None)
    }

    /// Creates the service like [`new`](Self::new), and registers the policies of its limits, so that
    /// operators see them, override them and switch them off. Their keys are texts such as
    /// `user=alice,path=/x`. Its decisions are recorded in `activity`.
    ///
    /// # Errors
    ///
    /// Returns an error if the registry has one of the policies from another source.
    pub fn new_registered(
        config: EnvoyConfig,
        limiter: Limiter,
        registry: Registry,
        activity: Activity,
    ) -> Result<Self, EnvoyConfigError> {
        config.register(&registry)?;
        Ok(Self::with(config, limiter, Some(registry), Some(activity)))
    }

    fn with(
        config: EnvoyConfig,
        limiter: Limiter,
        registry: Option<Registry>,
        activity: Option<Activity>,
    ) -> Self {
        let (stats, reload) = (Stats::new(), Mutex::default());
        stats.config_load_success.increment(1);
        let config = ArcSwap::from_pointee(config);
        Self(Arc::new(Shared { config, limiter, stats, activity, registry, reload }))
    }

    /// Returns the gRPC service, to add to a server of tonic.
    #[must_use]
    pub fn grpc(&self) -> EnvoyGrpc {
        EnvoyGrpc::new(Arc::clone(&self.0))
    }

    /// Returns the routes `/json`, which decides a request in JSON, and `/rlconfig`, which shows the limits
    /// in force.
    pub fn debug_router(&self) -> Router {
        debug::router(Arc::clone(&self.0))
    }

    /// Returns the configuration in force.
    #[must_use]
    pub fn config(&self) -> Arc<EnvoyConfig> {
        self.0.config.load_full()
    }

    /// Reads the files again, and returns whether they have changed.
    ///
    /// # Errors
    ///
    /// Returns an error if a file cannot be read or has a mistake. The configuration stays in force.
    pub fn reload(&self) -> Result<bool, EnvoyConfigError> {
        let config = self.config();
        let sources = config.sources_now();
        self.0.apply(&config, sources)
    }

    /// Watches the files: a change is in force within a second. A change with a mistake is reported once as
    /// an event, and in the metric `ratelimit_service_config_load_error`, and the configuration stays in
    /// force.
    ///
    /// # Panics
    ///
    /// Panics outside of a tokio runtime.
    pub fn watch(&self) -> EnvoyWatch {
        EnvoyWatch::start(self.clone())
    }

    /// Reads the files again, if they have stayed the same since the last call, and were not rejected.
    pub(super) fn poll(&self) {
        let config = self.config();
        let sources = config.sources_now();
        let seen = sources.as_ref().ok().cloned();
        let is_new = {
            let mut reload = self.0.reload.lock().unwrap_or_else(PoisonError::into_inner);
            let is_settled = reload.seen == seen;
            let is_rejected = seen.is_some() && reload.rejected == seen;
            reload.seen = seen;
            is_settled && !is_rejected
        };
        if is_new {
            // An error is reported where it occurs.
            let _ = self.0.apply(&config, sources);
        }
    }
}

impl From<&Envoy> for EnvoyService {
    /// Returns the implementation of the gRPC service, for servers and tests that call it themselves.
    fn from(envoy: &Envoy) -> Self {
        Self(Arc::clone(&envoy.0))
    }
}

impl Shared {
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

impl fmt::Debug for Envoy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Envoy").field("shared", &self.0).finish()
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

#[cfg(test)]
mod tests {
    use std::fs;

    use plimsoll_testing::servers::directory;

    use super::*;

    #[test]
    fn a_file_with_a_mistake_is_parsed_once() {
        let file = directory().join("limits.yaml");
        let write = |text: &str| fs::write(&file, text).unwrap();
        write("domain: shop");
        let envoy = Envoy::new(EnvoyConfig::load([&file]).unwrap(), Limiter::in_memory());
        let polled = || (0..3).for_each(|_| envoy.poll());
        // Each error is remembered, so its loss shows that the file was not parsed again.
        let error = || envoy.0.reload.lock().unwrap().error.take();
        write("domian: shop");
        polled();
        assert!(error().is_some());
        polled();
        assert!(error().is_none());
        assert!(envoy.reload().is_err(), "a call reads the files always");
        error();
        write("domain: shop\nlimits: []");
        polled();
        assert!(error().is_some(), "another mistake");
        // The texts in force, and then the rejected ones, come back.
        write("domain: shop");
        polled();
        write("domain: shop\nlimits: []");
        polled();
        assert!(error().is_some());
        write("domain: other");
        polled();
        assert!(envoy.config().tree.domain("other").is_some() && error().is_none());
    }
}
