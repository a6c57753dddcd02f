//! The handle of the service.

use std::{fmt, sync::Arc};

use axum::Router;
use plimsoll::Limiter;
use plimsoll_control::{Registry, admin::Activity};

use super::{
    config::{EnvoyConfig, EnvoyConfigError},
    debug,
    grpc::EnvoyGrpc,
    service::EnvoyService,
    shared::Shared,
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
        Self(Arc::new(Shared::new(config, limiter, registry, activity)))
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
        self.0.reload()
    }

    /// Watches the files: a change is in force within a second. A change with a mistake is reported once as
    /// an event, and in the metric `ratelimit_service_config_load_error`, and the configuration stays in
    /// force. A domain that no file has any more stays in force too, as an event and the metric
    /// `plimsoll_server_envoy_kept_domains` report, unless [`EnvoyOptions::remove_domains`] is set.
    ///
    /// [`EnvoyOptions::remove_domains`]: super::EnvoyOptions::remove_domains
    ///
    /// # Panics
    ///
    /// Panics outside of a tokio runtime.
    pub fn watch(&self) -> EnvoyWatch {
        EnvoyWatch::start(Arc::clone(&self.0))
    }
}

impl From<&Envoy> for EnvoyService {
    /// Returns the implementation of the gRPC service, for servers and tests that call it themselves.
    fn from(envoy: &Envoy) -> Self {
        Self(Arc::clone(&envoy.0))
    }
}

impl fmt::Debug for Envoy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Envoy").field("shared", &self.0).finish()
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
        let polled = || (0..3).for_each(|_| envoy.0.poll());
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
        assert!(envoy.config().tree.domain("shop").is_some(), "no file says that it ends");
    }
}
