//! The pipeline: a remote store as a limiter holds it, and as a store that protects itself.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use super::{
    Resilience,
    breaker::Breakers,
    deny_cache::DenyCache,
    fallback::Fallback,
    guarded::{CheckProgress, Guarded, Guards, Origin, Progress},
    instances::Instances,
    leases::{self, Leases},
};
use crate::{
    clock::micros,
    decision::Checked,
    error::Error,
    policy::{Charge, Charges},
    runtime::{BackgroundTask, MovingAverage},
    store::{Answer, Closing, NodeId, Request, Status, Store, Traits},
};

/// The shortest deadline of a request for which no caller waits. It is a quarter of the shortest expiry of a unit
/// in flight.
const BACKGROUND_DEADLINE: Duration = Duration::from_millis(250);

/// A guarded store, and above it the leases, if there are any.
#[derive(Debug)]
pub(crate) struct Pipeline {
    guarded: Guarded,
    leases: Option<Arc<Leases>>,
    /// The text of `Resilience::description`.
    description: Box<str>,
}

impl Pipeline {
    /// Creates the pipeline to `store`, with the stages of this configuration.
    pub(crate) fn new(store: impl Store, config: Resilience) -> Self {
        let traits = store.traits();
        let config = if traits.protects_itself {
            config.without_breaker().without_deny_cache().without_leases().without_fallback()
        } else {
            config
        };
        // A request may arrive at the store after its caller has stopped waiting, but rarely later
        // than another deadline.
        let max_delay = config.deadline.unwrap_or(Resilience::DEADLINE).saturating_mul(2);
        let description = config.description().into();
        let deny_cache =
            config.deny_cache.then(|| DenyCache::new(Arc::clone(&config.clock), max_delay));
        // A reset ends at its deadline, and may arrive later by `max_delay`.
        let pause = micros(max_delay.saturating_mul(2));
        let with_leases = config.leases && traits.counts_leases;
        let is_counting = traits.counts_instances && config.fallback.is_some();
        let instances = Arc::new(Instances::new(config.instances, is_counting));
        let fallback = config.fallback.map(|mut memory| {
            memory.clock = config.clock;
            Fallback::new(memory, Arc::clone(&instances))
        });
        let guarded = Guarded::new(Guards {
            deadline: config.deadline,
            breakers: config.breaker.map(Breakers::new),
            deny_cache,
            fallback,
            replay: BackgroundTask::default(),
            instances,
            store_times: MovingAverage::default(),
            scheduling_delay: traits.scheduling_delay.clone().unwrap_or_default(),
            traits,
            store: Box::new(store),
        });
        guarded.start_announcing();
        let leases =
            with_leases.then(|| Arc::new(Leases::new(&guarded, config.lease_clock, pause)));
        Self { guarded, leases, description }
    }

    /// Begins a check. The stocks of leased quotas pay it if they can, or else the
    /// [guarded store](Guarded::acquire) decides it. A check waits no longer than `within` for the store, if that
    /// is shorter than the deadline.
    pub(crate) fn acquire<'p>(
        &self,
        check: Box<Checked<'p>>,
        within: Option<Duration>,
    ) -> CheckProgress<'p> {
        self.acquire_by(check, self.limit_within(within))
    }

    /// Executes a request. A check that waits has a copy of the charges.
    pub(crate) fn call(&self, request: Request<'_>) -> Answer {
        self.call_by(request, self.guarded.deadline)
    }

    /// Executes a request like [`call`](Self::call), and waits no longer than `within`.
    pub(crate) fn call_within(&self, request: Request<'_>, within: Duration) -> Answer {
        self.call_by(request, self.limit_within(Some(within)))
    }

    /// Executes a request like [`call`](Self::call), for which no caller waits. It may take longer than the
    /// deadline of a caller, because a reply that is not awaited leaves its effect unknown.
    pub(crate) fn call_in_background(&self, request: Request<'_>) -> Answer {
        let limit = self.guarded.deadline.map(|deadline| deadline.max(BACKGROUND_DEADLINE));
        self.call_by(request, limit)
    }

    fn acquire_by<'p>(
        &self,
        check: Box<Checked<'p>>,
        limit: Option<Duration>,
    ) -> CheckProgress<'p> {
        match &self.leases {
            Some(leases) if check.charges.iter().all(Charge::may_be_leased) => {
                leases.acquire(check, limit)
            }
            _ => self.guarded.acquire(check, limit),
        }
    }

    fn call_by(&self, request: Request<'_>, limit: Option<Duration>) -> Answer {
        if let Request::Acquire(charges) = request {
            return match self.acquire_by(Checked::new(Charges::copy(charges)), limit) {
                Progress::Decided(check) => Answer::ready(check.map(|check| check.reply)),
                Progress::Waits(call) => Answer::pending(async move { Ok(call.await?.reply) }),
            };
        }
        match &self.leases {
            Some(leases) if leases::concerns(request) => leases.call(request, limit),
            _ => self.guarded.call(request, Origin::Caller, limit),
        }
    }

    /// Returns the longest wait of a caller that waits no longer than `within`.
    fn limit_within(&self, within: Option<Duration>) -> Option<Duration> {
        let deadline = self.guarded.deadline;
        within.map_or(deadline, |within| Some(deadline.map_or(within, |it| it.min(within))))
    }

    pub(crate) fn is_embedded(&self) -> bool {
        self.guarded.traits.is_embedded
    }

    /// Returns the node that a charge depends on.
    pub(crate) fn node(&self, charge: &Charge<'_>) -> NodeId {
        self.guarded.store.node(charge)
    }

    /// Ends the leases, also in a store with leases of its own: refunds the units in stock, and
    /// leases no more.
    pub(crate) async fn close(&self) -> Result<(), Error> {
        if let Some(leases) = &self.leases {
            leases.close().await?;
        }
        self.guarded.store.close().await
    }

    /// Returns the descriptions of the store and of what protects its callers.
    pub(crate) fn description(&self) -> String {
        format!("{}; {}", self.guarded.store.description(), self.description)
    }

    /// Returns the status of the store and of what protects its callers.
    pub(crate) fn status(&self) -> Status {
        let Guards { store, breakers, fallback, instances, store_times, scheduling_delay, .. } =
            &*self.guarded;
        let mut status = store.status();
        if let Some(breakers) = breakers {
            status = breakers.add_to(status);
        }
        status.latency = store_times.get().or(status.latency);
        status.scheduling_delay = scheduling_delay.average().or(status.scheduling_delay);
        if let Some(leases) = &self.leases {
            (status.leased_keys, status.leased_units) = leases.held();
        }
        status.instances = instances.counted().or(status.instances);
        status.memory = fallback.as_ref().map(Fallback::stats).or(status.memory);
        status
    }
}

impl Drop for Pipeline {
    fn drop(&mut self) {
        if let Some(leases) = &self.leases {
            leases.stop();
        }
        self.guarded.stop();
    }
}

/// A remote store behind the stages of a [`Resilience`], as a [`Store`] that
/// [protects itself](Traits::protects_itself).
///
/// A [`Limiter`](crate::Limiter) puts these stages around its store by itself. A store that consists of several
/// stores puts them around each of them, so that each has a breaker, a deny cache, leases and a fallback of its
/// own.
///
/// # Examples
///
/// ```
/// use std::time::Duration;
/// use plimsoll::{
///     MemoryStore, Resilience, memory::MemoryConfig, resilience::Protected, store::Store,
/// };
///
/// # let redis_store = MemoryStore::new(MemoryConfig::default());
/// let home = Protected::new(redis_store, Resilience::default().deadline(Duration::from_secs(1)));
/// assert!(home.traits().protects_itself);
/// ```
#[derive(Debug)]
pub struct Protected(Pipeline);

impl Protected {
    /// Puts the stages of `resilience` around `store`.
    #[must_use]
    pub fn new(store: impl Store, resilience: Resilience) -> Self {
        Self(Pipeline::new(store, resilience))
    }
}

impl Store for Protected {
    /// Executes the request, and waits until the [deadline](Resilience::deadline) of the stages at most.
    fn call(&self, request: Request<'_>, deadline: Option<Instant>) -> Answer {
        match deadline {
            Some(deadline) => self.0.call_within(
                request,
                deadline.saturating_duration_since(tokio::time::Instant::now().into_std()),
            ),
            None => self.0.call(request),
        }
    }

    fn traits(&self) -> Traits {
        Traits { keeps_deadlines: true, protects_itself: true, ..Traits::default() }
    }

    fn node(&self, charge: &Charge<'_>) -> NodeId {
        self.0.node(charge)
    }

    fn status(&self) -> Status {
        self.0.status()
    }

    fn description(&self) -> String {
        self.0.description()
    }

    fn close(&self) -> Closing<'_> {
        Box::pin(self.0.close())
    }
}
