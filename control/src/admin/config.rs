//! The configuration of the admin page.

use std::sync::Arc;

use plimsoll::Limiter;

use super::Access;
use crate::{Config, Offenders, Overrides, Registry};

/// The state that all handlers share.
pub(super) type Admin = Arc<AdminConfig>;

/// The parts that the admin page shows and changes, and the access to them.
#[derive(Debug, Clone)]
pub struct AdminConfig {
    pub(super) registry: Registry,
    pub(super) limiter: Limiter,
    pub(super) overrides: Overrides,
    pub(super) offenders: Offenders,
    pub(super) access: Access,
    pub(super) instance: String,
    pub(super) config: Option<Config>,
}

impl AdminConfig {
    /// Creates a configuration for the policies and the [limiter](Limiter) of these overrides, and
    /// [publishes](Overrides::publish) the counts of these offenders.
    #[must_use]
    pub fn new(overrides: Overrides, offenders: Offenders, access: Access) -> Self {
        let (registry, limiter) = overrides.target();
        overrides.publish(&offenders);
        let instance = format!("process {}", std::process::id());
        Self { registry, limiter, overrides, offenders, access, instance, config: None }
    }

    /// Sets the configuration that the policies come from. The page shows which one is in force, and the
    /// mistake of a newer one.
    #[must_use]
    pub fn config(mut self, config: &Config) -> Self {
        self.config = Some(config.clone());
        self
    }

    /// Sets the name of this instance, such as the name of the host. The page shows it. The default is the
    /// number of the process.
    #[must_use]
    pub fn instance(mut self, name: impl Into<String>) -> Self {
        self.instance = name.into();
        self
    }
}
