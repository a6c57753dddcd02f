//! A store in this process whose clock is set to the time of each request.

use std::{slice, time::Duration};

use plimsoll::{
    Error, MemoryStore, Policy,
    clock::ManualClock,
    memory::MemoryConfig,
    store::{Request as StoreRequest, Store, Verdict},
};

use super::requests::Request;

/// A store without a maximum, so that no key is ever evicted. New keys take the room of keys whose states have expired,
/// which count nothing any more.
pub(super) struct Simulation {
    store: MemoryStore,
    clock: ManualClock,
}

/// The decision on one request under one policy.
#[derive(Debug, Clone, Copy)]
pub(super) struct Judgement {
    pub(super) is_denied: bool,
    /// The wait of a denied request. `None` if it costs more than the capacity.
    pub(super) retry_after: Option<Duration>,
}

impl Simulation {
    pub(super) fn new() -> Self {
        let clock = ManualClock::default();
        Self { store: MemoryStore::new(unbounded().clock(clock.clone())), clock }
    }

    /// Decides a request as a service with this policy alone.
    ///
    /// # Errors
    ///
    /// Returns the error of the store, which has none.
    pub(super) fn judge(&self, policy: &Policy, request: &Request) -> Result<Judgement, Error> {
        self.clock.set(request.at);
        let charge = policy.charge(request.key, request.cost);
        let answer = self.store.call(StoreRequest::Acquire(slice::from_ref(&charge)), None);
        // The answer of an embedded store is ready, with one reply for each charge.
        let reply = answer.now().expect("an embedded store does not wait")?;
        let reply = reply.charges()[0];
        Ok(Judgement {
            is_denied: reply.verdict != Verdict::Passed,
            retry_after: reply.standing.retry_after,
        })
    }
}

/// Returns the configuration of a store that never forgets a key for want of room.
pub(super) fn unbounded() -> MemoryConfig {
    MemoryConfig::default().max_keys(usize::MAX).max_bytes(usize::MAX)
}
