//! The pipeline: a remote store behind its stages, as a limiter holds it.

use std::{slice, sync::Arc, time::Duration};

use super::{
    Resilience,
    background_task::BackgroundTask,
    breaker::Breakers,
    deny_cache::DenyCache,
    fallback::Fallback,
    leases::{self, Leases},
    moving_average::MovingAverage,
    scheduling_delay::SchedulingDelay,
    stages::Stages,
};
use crate::{
    clock::{Timestamp, micros},
    decision::ChargeReply,
    error::Error,
    policy::Charge,
    store::{Answer, Request, Status, Store},
};

/// A remote store and the stages that protect its callers, each of which may be missing. The steps of
/// a request are in [`Stages::call_leased`].
#[derive(Debug)]
pub(crate) struct Pipeline(Arc<Stages>);

impl Pipeline {
    pub(super) fn new(store: Box<dyn Store>, config: Resilience) -> Self {
        let is_protected = store.is_protected();
        let config = match is_protected {
            true => {
                config.without_breaker().without_deny_cache().without_leases().without_fallback()
            }
            false => config,
        };
        // A request may arrive at the store after its caller has stopped waiting, but rarely later
        // than another deadline.
        let max_delay = config.deadline.unwrap_or(Resilience::DEADLINE).saturating_mul(2);
        let description = config.description().into();
        let deny_cache =
            config.deny_cache.then(|| DenyCache::new(Arc::clone(&config.clock), max_delay));
        // A reset ends at its deadline, and may arrive later by `max_delay`.
        let pause = micros(max_delay.saturating_mul(2));
        let leases = (config.leases && store.counts_leases())
            .then(|| Leases::new(config.lease_clock, pause));
        let fallback = config.fallback.map(|mut memory| {
            memory.clock = config.clock;
            Fallback::new(memory, config.instances)
        });
        Self(Arc::new(Stages {
            has_debt_marks: store.has_debt_marks(),
            store,
            is_protected,
            description,
            deadline: config.deadline,
            leases,
            breakers: config.breaker.map(Breakers::new),
            deny_cache,
            fallback,
            replay: BackgroundTask::default(),
            store_times: MovingAverage::default(),
            scheduling_delay: SchedulingDelay::new(),
        }))
    }

    /// Executes a request, through the steps of [`Stages::call_leased`].
    #[inline]
    pub(crate) fn call(&self, request: Request<'_>) -> Answer {
        self.0.call_leased(request, self.0.deadline)
    }

    /// Executes a request like [`call`](Self::call), and waits no longer than `limit`.
    pub(crate) fn call_within(&self, request: Request<'_>, limit: Duration) -> Answer {
        let limit = self.0.deadline.map_or(limit, |deadline| deadline.min(limit));
        self.0.call_leased(request, Some(limit))
    }

    /// Decides a check with this one charge, if its quota is leased. If the stock pays it, the result
    /// is its time and reply.
    ///
    /// This is [`call`](Self::call), without an [`Answer`] in the common case.
    ///
    /// # Errors
    ///
    /// Returns the answer if the stock is too small.
    #[inline]
    pub(crate) fn acquire_leased(
        &self,
        charge: &Charge<'_>,
    ) -> Option<Result<(Timestamp, ChargeReply), Answer>> {
        charge.quota().lease()?;
        Some(leases::acquire_one(&self.0, self.0.leases.as_ref()?, charge))
    }

    /// Ends the leases, also those of a store with leases of its own: refunds the units in stock, and
    /// leases no more.
    pub(crate) async fn close(&self) -> Result<(), Error> {
        leases::close(&self.0).await?;
        self.0.store.close().await
    }

    /// Returns the fallback if it decides a check with this one charge because the breaker is open.
    ///
    /// This is step 2 of [`Stages::call_leased`], without an [`Answer`].
    #[inline]
    pub(crate) fn fallback_for(&self, charge: &Charge<'_>) -> Option<&Fallback> {
        let is_open = self.0.is_rejected(Request::Acquire(slice::from_ref(charge)));
        self.0.fallback.as_ref().filter(|fallback| is_open && fallback.decides_alone(charge))
    }

    /// Returns the descriptions of the store and of the stages around it.
    pub(crate) fn description(&self) -> String {
        format!("{}; {}", self.0.store.description(), self.0.description)
    }

    /// Returns the status of the store and of the stages around it.
    pub(crate) fn status(&self) -> Status {
        let Stages { store, leases, breakers, fallback, store_times, scheduling_delay, .. } =
            &*self.0;
        let mut status = store.status();
        if let Some(breakers) = breakers {
            status = breakers.add_to(status);
        }
        status.latency = store_times.get().or(status.latency);
        status.scheduling_delay = scheduling_delay.average().or(status.scheduling_delay);
        if let Some(leases) = leases {
            (status.leased_keys, status.leased_units) = leases.held();
        }
        status.memory = fallback.as_ref().map(Fallback::stats).or(status.memory);
        status
    }
}

impl Drop for Pipeline {
    fn drop(&mut self) {
        self.0.replay.stop();
        if let Some(leases) = &self.0.leases {
            leases.stop();
        }
        if let Some(breakers) = &self.0.breakers {
            breakers.stop();
        }
    }
}

impl Resilience {
    /// Creates the pipeline to `store`, with the stages of this configuration.
    pub(crate) fn protect(self, store: impl Store) -> Pipeline {
        Pipeline::new(Box::new(store), self)
    }
}
