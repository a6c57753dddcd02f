//! A remote store and its stages, as a store.

use std::time::Instant;

use super::{Pipeline, Resilience};
use crate::{
    policy::Charge,
    store::{Answer, Closing, NodeId, Request, Status, Store, Traits},
};

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
