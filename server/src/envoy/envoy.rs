//! The handle of the service.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use arc_swap::ArcSwap;
use envoy_types::pb::envoy::service::ratelimit::v3::rate_limit_service_server::RateLimitServiceServer;
use plimsoll::Limiter;
use plimsoll_control::{Offenders, Registry};

use super::{
    config::{EnvoyConfig, EnvoyConfigError, Files},
    request::MAX_MESSAGE_BYTES,
    stats::Stats,
};

/// The rate limit service for Envoy. Clones share the [configuration](EnvoyConfig) that is in force.
///
/// ```no_run
/// use plimsoll::Limiter;
/// use plimsoll_control::{Offenders, Registry};
/// use plimsoll_server::envoy::{Envoy, EnvoyConfig, EnvoyOptions};
/// use tonic::service::Routes;
///
/// # fn serve() -> Result<(), Box<dyn std::error::Error>> {
/// let config = EnvoyConfig::load(["/etc/ratelimit"], EnvoyOptions::default())?;
/// let limiter = Limiter::in_memory();
/// let envoy = Envoy::new(config, limiter, Registry::default(), Offenders::new(1_000))?;
/// let watch = envoy.watch(); // a change of the files is in force within a second, until this is dropped
/// let grpc = Routes::new(envoy.grpc()).into_axum_router();
/// let debug = envoy.debug_router();
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone)]
pub struct Envoy(pub(super) Arc<EnvoyParts>);

/// The parts of the service: the configuration in force, and the [limiter](Limiter) that decides under it.
#[derive(Debug)]
pub(super) struct EnvoyParts {
    pub(super) config: ArcSwap<EnvoyConfig>,
    pub(super) limiter: Limiter,
    pub(super) stats: Stats,
    /// The decisions that the admin page shows.
    pub(super) offenders: Offenders,
    pub(super) registry: Registry,
    seen: Mutex<Seen>,
}

/// The files as they were read last. A file may be half written, so files act once they stay the same.
#[derive(Debug, Default)]
pub(super) struct Seen {
    pub(super) files: Option<Result<Files, EnvoyConfigError>>,
    pub(super) is_tried: bool,
}

impl Envoy {
    /// Creates the service with a configuration, over a [limiter](Limiter), and registers the policies of its limits, so
    /// that operators see them, override them and switch them off. Their keys are texts such as
    /// `user=alice,path=/x`. Its decisions are recorded in the [offenders](Offenders).
    ///
    /// # Errors
    ///
    /// Returns an error if the [registry](Registry) has one of the policies from another source.
    pub fn new(
        config: EnvoyConfig,
        limiter: Limiter,
        registry: Registry,
        offenders: Offenders,
    ) -> Result<Self, EnvoyConfigError> {
        config.register(&registry)?;
        let stats = Stats::new();
        stats.config_load_success.increment(1);
        Ok(Self(Arc::new(EnvoyParts {
            config: ArcSwap::from_pointee(config),
            limiter,
            stats,
            offenders,
            registry,
            seen: Mutex::default(),
        })))
    }

    /// Returns the gRPC service, to add to the [routes](tonic::service::Routes) of tonic.
    #[must_use]
    pub fn grpc(&self) -> RateLimitServiceServer<Self> {
        RateLimitServiceServer::new(self.clone()).max_decoding_message_size(MAX_MESSAGE_BYTES)
    }

    /// Returns the configuration in force. [`watch`](Self::watch) and [`reload`](Self::reload) replace it.
    #[must_use]
    pub fn config(&self) -> Arc<EnvoyConfig> {
        self.0.config.load_full()
    }
}

impl EnvoyParts {
    pub(super) fn seen(&self) -> MutexGuard<'_, Seen> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
