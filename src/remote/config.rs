//! The configuration of the stages between a limiter and a remote store.

use std::{fmt, sync::Arc, time::Duration};

use super::BreakerConfig;
use crate::{
    clock::{BootClock, Clock, SystemClock},
    memory::{MemoryConfig, size_text},
};

/// The stages between a [`Limiter`](crate::Limiter) and a remote [`Store`](crate::store::Store)
/// that may be slow, unreachable or overloaded.
///
/// [`Limiter::new`](crate::Limiter::new) uses the default, and
/// [`Limiter::with_resilience`](crate::Limiter::with_resilience) takes another one. A store that
/// [is embedded](crate::store::Traits::is_embedded) gets none of these stages.
///
/// | stage | effect | default |
/// |---|---|---|
/// | leases | a process takes units of a busy key in bulk, if the quota is [leased](crate::Quota::leased) | on |
/// | [`deadline`](Self::deadline) | a check stops waiting for the store at this time | 50 ms |
/// | [`breaker`](Self::breaker) | a store (of a cluster: a node) that keeps failing gets no requests, only a probe every 500 ms | [`BreakerConfig`] |
/// | deny cache | a check that the store would deny is denied at once | on |
/// | [`fallback`](Self::fallback) | while the store cannot answer, the [`OnFailure`](crate::OnFailure) of each charge says who decides | a share for each instance |
///
/// [`resilience`](crate::guide::resilience) describes the stages in detail.
///
/// # Examples
///
/// Five instances share the limits. While Redis is unreachable, each enforces a fifth of them, whatever number of
/// instances Redis counts:
///
/// ```
/// use std::time::Duration;
/// use plimsoll::{Limiter, MemoryStore, Resilience, memory::MemoryConfig};
///
/// let resilience = Resilience::default().instances(5).deadline(Duration::from_millis(20));
/// # let redis_store = MemoryStore::new(MemoryConfig::default());
/// let limiter = Limiter::with_resilience(redis_store, resilience);
/// ```
///
/// A check fails with an [`Error`](crate::Error) whenever the store does:
///
/// ```
/// use plimsoll::{Limiter, MemoryStore, Resilience, memory::MemoryConfig};
///
/// # let redis_store = MemoryStore::new(MemoryConfig::default());
/// let limiter = Limiter::with_resilience(redis_store, Resilience::none());
/// ```
#[derive(Clone)]
pub struct Resilience {
    pub(super) deadline: Option<Duration>,
    pub(super) breaker: Option<BreakerConfig>,
    pub(super) fallback: Option<MemoryConfig>,
    pub(super) instances: Option<u32>,
    pub(super) deny_cache: bool,
    pub(super) leases: bool,
    pub(super) clock: Arc<dyn Clock>,
    /// The clock of the leases.
    pub(super) lease_clock: Arc<dyn Clock>,
}

impl Default for Resilience {
    fn default() -> Self {
        Self {
            deadline: Some(Self::DEADLINE),
            breaker: Some(BreakerConfig::default()),
            fallback: Some(MemoryConfig::default().max_keys(100_000).max_bytes(64 << 20)),
            instances: None,
            deny_cache: true,
            leases: true,
            clock: Arc::new(SystemClock::new()),
            lease_clock: Arc::new(BootClock::new()),
        }
    }
}

impl Resilience {
    pub(super) const DEADLINE: Duration = Duration::from_millis(50);

    /// Returns a configuration without any stage: each failure of the store is an error of the
    /// check.
    #[must_use]
    pub fn none() -> Self {
        Self {
            deadline: None,
            breaker: None,
            fallback: None,
            deny_cache: false,
            leases: false,
            ..Self::default()
        }
    }

    /// Sets the longest time for which a check waits for the store. The default is 50 ms. A check waits
    /// longer if [this process is late](crate::guide::resilience#when-this-process-is-late).
    ///
    /// A request that was sent before the deadline may still be applied after it; see
    /// [`Effect::Unknown`](crate::error::Effect::Unknown). Outside of a tokio runtime there is no timer,
    /// and the store's own timeouts apply instead.
    #[must_use]
    pub fn deadline(mut self, deadline: Duration) -> Self {
        self.deadline = Some(deadline);
        self
    }

    /// Sets the [configuration](BreakerConfig) of the circuit breaker: when it opens, and how it
    /// closes.
    #[must_use]
    pub fn breaker(mut self, breaker: BreakerConfig) -> Self {
        self.breaker = Some(breaker);
        self
    }

    /// Removes the circuit breaker: every check is sent to the store, however often it fails.
    #[must_use]
    pub fn without_breaker(mut self) -> Self {
        self.breaker = None;
        self
    }

    /// Sets the number of instances that share the limits. By default, the instances count themselves [in
    /// Redis](crate::guide::resilience#how-instances-are-counted).
    ///
    /// While the store is unreachable, each instance enforces this part of each limit, at least 1
    /// unit. Together they then admit no more than the limit, or one unit each if there are more
    /// instances than units.
    ///
    /// # Panics
    ///
    /// Panics if `instances` is 0.
    #[must_use]
    pub fn instances(mut self, instances: u32) -> Self {
        assert!(instances > 0, "a limit is shared by 1 instance at least");
        self.instances = Some(instances);
        self
    }

    /// Sets the size of the [memory store](crate::MemoryStore) that decides while the remote
    /// store cannot answer. The default is 100,000 keys in about 64 MiB.
    #[must_use]
    pub fn fallback(mut self, memory: MemoryConfig) -> Self {
        self.fallback = Some(memory);
        self
    }

    /// Removes the fallback: while the store cannot answer, each check fails with an
    /// [`Error`](crate::Error).
    #[must_use]
    pub fn without_fallback(mut self) -> Self {
        self.fallback = None;
        self
    }

    /// Removes the deny cache: checks of keys that the store has just denied are sent to it as
    /// well.
    #[must_use]
    pub fn without_deny_cache(mut self) -> Self {
        self.deny_cache = false;
        self
    }

    /// Removes the leases: checks under a [leased](crate::Quota::leased) quota are sent to the store
    /// like all others.
    #[must_use]
    pub fn without_leases(mut self) -> Self {
        self.leases = false;
        self
    }

    /// Sets the [`Clock`] of all stages. The default is [`SystemClock`] for the deny cache and the
    /// fallback, and for leases a clock that also counts the time in which the machine is suspended.
    #[must_use]
    pub fn clock(mut self, clock: impl Clock) -> Self {
        self.clock = Arc::new(clock);
        self.lease_clock = Arc::clone(&self.clock);
        self
    }

    /// Returns the stages as text, for the event that a layer emits when it is first used.
    pub(crate) fn description(&self) -> String {
        let deadline = self.deadline.map(|deadline| format!("deadline {deadline:?}"));
        let breaker = self.breaker.is_some().then(|| "breaker".to_owned());
        let deny_cache = self.deny_cache.then(|| "deny cache".to_owned());
        let fallback = self.fallback.as_ref().map(|memory| {
            let share = match self.instances {
                None => "a share of each limit".to_owned(),
                Some(1) => "the whole of each limit".to_owned(),
                Some(instances) => format!("1/{instances} of each limit"),
            };
            format!("fallback {share} in memory ({})", size_text(memory.max_keys, memory.max_bytes))
        });
        let stages = [deadline, breaker, deny_cache, fallback];
        let stages: Vec<_> = stages.into_iter().flatten().collect();
        if stages.is_empty() { "no resilience".to_owned() } else { stages.join(", ") }
    }

    /// Sets the [`deadline`](Self::deadline), and with it the time after which the breaker counts a call as
    /// [slow](BreakerConfig::slow): for a store that is far away. Over Redis, a check still ends after
    /// `RedisConfig::response_timeout`.
    #[must_use]
    pub fn patient(mut self, deadline: Duration) -> Self {
        self.breaker = self.breaker.map(|breaker| BreakerConfig { slow: deadline, ..breaker });
        self.deadline(deadline)
    }
}

impl fmt::Debug for Resilience {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Resilience")
            .field("deadline", &self.deadline)
            .field("breaker", &self.breaker)
            .field("instances", &self.instances)
            .field("deny_cache", &self.deny_cache)
            .field("leases", &self.leases)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_stages_are_named() {
        assert_eq!(
            Resilience::default().description(),
            "deadline 50ms, breaker, deny cache, fallback a share of each limit in memory \
             (100000 keys, 64 MiB)"
        );
        let five = Resilience::default().instances(5).deadline(Duration::from_millis(20));
        assert!(
            five.without_breaker()
                .description()
                .starts_with("deadline 20ms, deny cache, fallback 1/5 of each limit in memory")
        );
        assert_eq!(Resilience::none().description(), "no resilience");
    }
}
