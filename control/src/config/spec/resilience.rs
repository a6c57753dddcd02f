//! The treatment of a store that is slow or cannot answer.

use plimsoll::{Resilience, memory::MemoryConfig};
use serde::Deserialize;

use super::{Time, Within};

/// The treatment of a store that is slow or cannot answer.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields, expecting = "a table of `deadline`, `breaker`, `fallback` and others")]
pub(in crate::config) struct ResilienceSpec {
    /// The longest time for which a check waits for the store. The default is `50ms`.
    pub(in crate::config) deadline: Option<Time>,
    /// A circuit breaker keeps calls from a store that fails or is slow, unless this is false. The default is true.
    pub(in crate::config) breaker: Option<bool>,
    /// A memory store of 100,000 keys in 64 MiB decides while the store cannot answer, unless this is false. The
    /// default is true.
    pub(in crate::config) fallback: Option<bool>,
    /// The number of instances that share the limits while the store cannot answer. By default, Redis counts them.
    pub(in crate::config) instances: Option<Within<1, { u32::MAX }>>,
    /// A key that was just denied is denied again without the store, unless this is false. The default is
    /// true.
    pub(in crate::config) deny_cache: Option<bool>,
    /// Units of leased quotas are taken in bulk, unless this is false. The default is true.
    pub(in crate::config) leases: Option<bool>,
}

/// The size of a memory store.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields, expecting = "a table of `max_keys` and `max_bytes`")]
pub(in crate::config) struct MemorySpec {
    /// The maximum number of keys. 1,000,000 take 4 MiB at the start.
    pub(in crate::config) max_keys: Option<Within<1, 100_000_000>>,
    /// The approximate maximum number of bytes.
    pub(in crate::config) max_bytes: Option<u32>,
}

impl ResilienceSpec {
    pub(in crate::config) fn resilience(&self) -> Resilience {
        let to = Resilience::default();
        let to = set(to, self.deadline.map(Into::into), Resilience::deadline);
        let to = set(to, self.instances.map(Within::get), Resilience::instances);
        let to = if self.breaker == Some(false) { to.without_breaker() } else { to };
        let to = if self.fallback == Some(false) { to.without_fallback() } else { to };
        let to = if self.deny_cache == Some(false) { to.without_deny_cache() } else { to };
        if self.leases == Some(false) { to.without_leases() } else { to }
    }
}

impl MemorySpec {
    pub(in crate::config) fn config(&self) -> MemoryConfig {
        let keys = self.max_keys.map(|keys| keys.get() as usize);
        let to = set(MemoryConfig::default(), keys, MemoryConfig::max_keys);
        set(to, self.max_bytes.map(|bytes| bytes as usize), MemoryConfig::max_bytes)
    }
}

/// Returns a configuration with a setting, if there is one.
pub(in crate::config) fn set<C, T>(config: C, value: Option<T>, setter: fn(C, T) -> C) -> C {
    match value {
        Some(value) => setter(config, value),
        None => config,
    }
}
