//! The treatment of a store that is slow or cannot answer.

use plimsoll::{Resilience, memory::MemoryConfig, resilience::BreakerConfig};
use serde::Deserialize;

use super::{OrOff, Timeout, Within, set};

/// The treatment of a store that is slow or cannot answer.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields, expecting = "a table of `deadline`, `breaker`, `fallback` and others")]
pub(in crate::config) struct ResilienceSpec {
    /// The longest time for which a check waits for the store. The default is `50ms`.
    pub(in crate::config) deadline: Option<Timeout>,
    /// The circuit breaker, or `off`.
    pub(in crate::config) breaker: Option<OrOff<BreakerSpec>>,
    /// The size of the memory store that decides while the store cannot answer, or `off`. The default is
    /// 100,000 keys in 64 MiB.
    pub(in crate::config) fallback: Option<OrOff<MemorySpec>>,
    /// The number of instances that share the limits while the store cannot answer. The default is 1.
    pub(in crate::config) instances: Option<Within<1, { u32::MAX }>>,
    /// A key that was just denied is denied again without the store, unless this is false. The default is
    /// true.
    pub(in crate::config) deny_cache: Option<bool>,
    /// Units of leased quotas are taken in bulk, unless this is false. The default is true.
    pub(in crate::config) leases: Option<bool>,
}

/// A circuit breaker: the conditions under which it opens and closes.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields, expecting = "a table of the fields of the breaker")]
pub(in crate::config) struct BreakerSpec {
    /// The time over which calls are counted. The default is `10s`.
    pub(in crate::config) window: Option<Timeout>,
    /// The number of calls in the window from which on `failures_percent` applies. The default is 10.
    pub(in crate::config) min_calls: Option<u32>,
    /// The share of failed and slow calls at which the breaker opens, in percent. The default is 50.
    pub(in crate::config) failures_percent: Option<Within<1, 100>>,
    /// The number of failed or slow calls in a row that opens the breaker. The default is 10.
    pub(in crate::config) consecutive: Option<Within<1, { u32::MAX }>>,
    /// The time from which on a call is slow. The default is `40ms`.
    pub(in crate::config) slow: Option<Timeout>,
    /// The time between two probes while the breaker is open. The default is `500ms`.
    pub(in crate::config) open: Option<Timeout>,
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
        let to = match &self.breaker {
            Some(OrOff::On(breaker)) => to.breaker(breaker.config()),
            Some(OrOff::Off) => to.without_breaker(),
            None => to,
        };
        let to = match &self.fallback {
            Some(OrOff::On(memory)) => {
                let default = MemoryConfig::default().max_keys(100_000).max_bytes(64 << 20);
                to.fallback(memory.over(default))
            }
            Some(OrOff::Off) => to.without_fallback(),
            None => to,
        };
        let to = if self.deny_cache == Some(false) { to.without_deny_cache() } else { to };
        if self.leases == Some(false) { to.without_leases() } else { to }
    }
}

impl BreakerSpec {
    fn config(&self) -> BreakerConfig {
        let to = BreakerConfig::default();
        let to = set(to, self.window.map(Into::into), BreakerConfig::window);
        let to = set(to, self.min_calls, BreakerConfig::min_calls);
        let to = set(to, self.failures_percent.map(Within::get), BreakerConfig::failures_percent);
        let to = set(to, self.consecutive.map(Within::get), BreakerConfig::consecutive);
        let to = set(to, self.slow.map(Into::into), BreakerConfig::slow);
        set(to, self.open.map(Into::into), BreakerConfig::open)
    }
}

impl MemorySpec {
    /// Returns a configuration with these settings, and those of `default` for the others.
    pub(in crate::config) fn over(&self, default: MemoryConfig) -> MemoryConfig {
        let keys = self.max_keys.map(|keys| keys.get() as usize);
        let to = set(default, keys, MemoryConfig::max_keys);
        set(to, self.max_bytes.map(|bytes| bytes as usize), MemoryConfig::max_bytes)
    }
}
