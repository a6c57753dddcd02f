//! The connection of overrides to Redis.

use std::fmt;

/// The Redis that has the overrides of a service.
///
/// It is one server: the one that has the budgets, or another one. [`Overrides::connect_with`](super::Overrides::connect_with) takes it.
#[derive(Clone)]
pub struct OverridesConfig {
    pub(super) url: String,
    pub(super) prefix: String,
    pub(super) is_lazy: bool,
    pub(super) is_passive: bool,
}

impl OverridesConfig {
    /// Creates the configuration for the server at a URL, such as `redis://user:password@host:6379/0`.
    #[must_use]
    pub fn url(url: impl Into<String>) -> Self {
        Self { url: url.into(), prefix: "plim".into(), is_lazy: false, is_passive: false }
    }

    /// Sets the prefix of all keys in Redis: see [`RedisConfig::prefix`](plimsoll::RedisConfig::prefix).
    /// Instances share their overrides if they have the same prefix. The default is `plim`.
    #[must_use]
    pub fn prefix(mut self, prefix: impl Into<String>) -> Self {
        self.prefix = prefix.into();
        self
    }

    /// Starts without overrides if Redis does not answer, and learns them when it does. The default is an
    /// error.
    #[must_use]
    pub fn lazy(mut self, is_lazy: bool) -> Self {
        self.is_lazy = is_lazy;
        self
    }

    /// Writes to Redis only when this process is asked for a change: it does not put back overrides that Redis
    /// has lost, does not send blocks again, and does not renew the time to live. Tools that look at a service
    /// are passive. The default is false.
    #[must_use]
    pub fn passive(mut self, is_passive: bool) -> Self {
        self.is_passive = is_passive;
        self
    }
}

/// Prints no address and no password.
impl fmt::Debug for OverridesConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OverridesConfig").field("prefix", &self.prefix).finish_non_exhaustive()
    }
}
