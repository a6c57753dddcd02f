//! The configuration of the stages between a limiter and a remote store.

use std::{fmt, sync::Arc, time::Duration};

use super::BreakerConfig;
use crate::{
    clock::{Clock, SystemClock},
    store::MemoryConfig,
};

/// How a limiter bears a store that is slow, gone or wrong.
///
/// [`Limiter::new`](crate::Limiter::new) takes the default; an embedded store needs none of it and
/// gets none. From the store outward:
///
/// | part | what it does | default |
/// |---|---|---|
/// | deadline | no check waits longer for the store | 50 ms |
/// | breaker | a store that fails is left alone, then tried again, then trusted again bit by bit | [`BreakerConfig`] |
/// | deny cache | what the store is known to deny is denied at once, with the same waits | on |
/// | fallback | what the store does not decide, each charge's [`OnFailure`](crate::OnFailure) does | 1 instance |
///
/// ```
/// use std::time::Duration;
/// use tollgate::{Limiter, store::{MemoryConfig, MemoryStore, Resilience}};
///
/// // Five instances share the limits: while Redis is gone, each enforces a fifth.
/// let resilience = Resilience::default().instances(5).deadline(Duration::from_millis(20));
/// # let redis_store = MemoryStore::new(MemoryConfig::default());
/// let limiter = Limiter::with(redis_store, resilience);
/// ```
#[derive(Clone)]
pub struct Resilience {
    pub(super) deadline: Option<Duration>,
    pub(super) breaker: Option<BreakerConfig>,
    pub(super) fallback: Option<MemoryConfig>,
    pub(super) instances: u32,
    pub(super) deny_cache: bool,
    pub(super) clock: Arc<dyn Clock>,
}

impl Default for Resilience {
    fn default() -> Self {
        Self {
            deadline: Some(Self::DEADLINE),
            breaker: Some(BreakerConfig::default()),
            fallback: Some(MemoryConfig::default().max_keys(100_000).max_bytes(64 << 20)),
            instances: 1,
            deny_cache: true,
            clock: Arc::new(SystemClock::new()),
        }
    }
}

impl Resilience {
    pub(super) const DEADLINE: Duration = Duration::from_millis(50);

    /// None of it: every failure of the store is an error of the check.
    #[must_use]
    pub fn none() -> Self {
        Self { deadline: None, breaker: None, fallback: None, deny_cache: false, ..Self::default() }
    }

    /// No check waits longer than this for the store; what it was asked may still happen.
    #[must_use]
    pub fn deadline(mut self, deadline: Duration) -> Self {
        self.deadline = Some(deadline);
        self
    }

    /// Leaves a failing store alone in this way.
    #[must_use]
    pub fn breaker(mut self, breaker: BreakerConfig) -> Self {
        self.breaker = Some(breaker);
        self
    }

    /// Asks the store each time, however often it fails.
    #[must_use]
    pub fn without_breaker(mut self) -> Self {
        self.breaker = None;
        self
    }

    /// How many instances share the limits: while the store is gone, each enforces this part of
    /// them, at least 1 unit. Together they then admit no more than one limit, and never more than
    /// `instances` units.
    ///
    /// # Panics
    ///
    /// If there are none.
    #[must_use]
    pub fn instances(mut self, instances: u32) -> Self {
        assert!(instances > 0, "a limit is shared by 1 instance at least");
        self.instances = instances;
        self
    }

    /// How much the fallback remembers. The default is 100,000 keys in about 64 MiB.
    #[must_use]
    pub fn fallback(mut self, memory: MemoryConfig) -> Self {
        self.fallback = Some(memory);
        self
    }

    /// Asks the store about each request, also of keys that it has just denied.
    #[must_use]
    pub fn without_deny_cache(mut self) -> Self {
        self.deny_cache = false;
        self
    }

    /// Where the deny cache and the fallback get the time from.
    #[must_use]
    pub fn clock(mut self, clock: impl Clock) -> Self {
        self.clock = Arc::new(clock);
        self
    }
}

impl fmt::Debug for Resilience {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Resilience")
            .field("deadline", &self.deadline)
            .field("breaker", &self.breaker)
            .field("instances", &self.instances)
            .field("deny_cache", &self.deny_cache)
            .finish_non_exhaustive()
    }
}
