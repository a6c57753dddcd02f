//! The circuit breakers of a store, one for each of its nodes.

use std::{
    collections::HashMap,
    sync::{Arc, PoisonError, RwLock},
};

use smallvec::SmallVec;
use tokio::time::Instant;

use super::{BreakerConfig, CallOutcome, Permit, SharedBreaker, state_counts::StateCounts};
use crate::store::{BreakerStatus, NodeId, Request, Status, Store};

/// The maximum number of nodes with a breaker of their own. Further nodes share one.
const MAX_NODES: usize = 2_000;

/// The circuit breakers of a store, one for each of its [nodes](NodeId).
///
/// A node gets its breaker with the first request that depends on it. The breaker is dropped when
/// the node has left the store.
#[derive(Debug)]
pub(in crate::store::resilience) struct Breakers {
    config: BreakerConfig,
    /// The breaker of [`NodeId::ONLY`], which is the only one unless the store has several nodes.
    only: Arc<SharedBreaker>,
    /// At most [`MAX_NODES`].
    others: RwLock<HashMap<NodeId, Arc<SharedBreaker>>>,
    states: Arc<StateCounts>,
}

/// The permits of a request: one for each node that it depends on. The first one is kept in place,
/// so the permits of a store with one node need no allocation.
pub(in crate::store::resilience) type Permits = SmallVec<[NodePermit; 1]>;

/// The permit of the breaker of one node.
#[derive(Debug)]
pub(in crate::store::resilience) struct NodePermit {
    pub(in crate::store::resilience) breaker: Arc<SharedBreaker>,
    pub(in crate::store::resilience) permit: Permit,
}

impl Breakers {
    pub(in crate::store::resilience) fn new(config: BreakerConfig) -> Self {
        let states = Arc::new(StateCounts::default());
        let only = Arc::new(SharedBreaker::new(config, NodeId::ONLY, &states));
        Self { config, only, others: RwLock::default(), states }
    }

    /// Returns whether a breaker of this request certainly rejects it. Takes no lock while all
    /// breakers are closed.
    #[inline]
    pub(in crate::store::resilience) fn reject(
        &self,
        store: &dyn Store,
        request: Request<'_>,
    ) -> bool {
        self.states.any() && self.of(store, request).iter().any(|it| it.rejects_all())
    }

    /// Requests a permit from the breaker of each node that the request depends on. If a breaker
    /// rejects the request, the permits of the others are returned, and `last_resort` may still
    /// give one.
    ///
    /// An `urgent` request is not subject to the limits of calls in flight.
    ///
    /// # Errors
    ///
    /// If a breaker rejects the request.
    pub(in crate::store::resilience) fn try_acquire(
        &self,
        store: &dyn Store,
        request: Request<'_>,
        start: Instant,
        is_urgent: bool,
        last_resort: impl Fn(&Arc<SharedBreaker>) -> Option<Permit>,
    ) -> Result<Permits, Rejected> {
        let mut permits = Permits::new();
        for breaker in self.of(store, request) {
            let permit = breaker.try_acquire(start, is_urgent);
            match permit.or_else(|| last_resort(&breaker)) {
                Some(permit) => permits.push(NodePermit { breaker, permit }),
                None => {
                    for NodePermit { breaker, permit } in permits {
                        breaker.record(permit, start, CallOutcome::Unknown);
                    }
                    return Err(Rejected);
                }
            }
        }
        Ok(permits)
    }

    /// Drops the breaker of a node that has left the store. Returns whether the node has left.
    pub(in crate::store::resilience) fn remove_if_gone(
        &self,
        store: &dyn Store,
        node: NodeId,
    ) -> bool {
        let is_gone = node != NodeId::ONLY && !store.has_node(node);
        if is_gone {
            self.others.write().unwrap_or_else(PoisonError::into_inner).remove(&node);
        }
        is_gone
    }

    /// Adds the state of the breakers to the status of the store.
    pub(in crate::store::resilience) fn add_to(&self, status: Status) -> Status {
        let breakers = self.all();
        let states = breakers.iter().map(|breaker| breaker.status());
        let is_open = |state: &BreakerStatus| {
            matches!(state, BreakerStatus::Open { .. } | BreakerStatus::HalfOpen)
        };
        let open = states.clone().filter(is_open).count();
        let worst = states.max_by_key(|state| match state {
            BreakerStatus::Closed => (0, None),
            BreakerStatus::Recovering => (1, None),
            BreakerStatus::HalfOpen => (2, None),
            BreakerStatus::Open { elapsed, .. } => (3, Some(*elapsed)),
        });
        Status { breaker: worst.or(status.breaker), open_breakers: open, ..status }
    }

    /// Returns whether the store has several nodes.
    pub(in crate::store::resilience) fn has_nodes(&self) -> bool {
        !self.others.read().unwrap_or_else(PoisonError::into_inner).is_empty()
    }

    /// Ends the probers of all breakers.
    pub(in crate::store::resilience) fn stop(&self) {
        self.all().iter().for_each(|breaker| breaker.stop());
    }

    /// Returns the breakers of the nodes that a request depends on, each once.
    fn of(&self, store: &dyn Store, request: Request<'_>) -> SmallVec<[Arc<SharedBreaker>; 1]> {
        let mut breakers = SmallVec::<[Arc<SharedBreaker>; 1]>::new();
        for charge in request.charges() {
            let node = store.node(charge);
            if !breakers.iter().any(|breaker| breaker.node() == node) {
                breakers.push(self.get(store, node));
            }
        }
        breakers
    }

    fn get(&self, store: &dyn Store, node: NodeId) -> Arc<SharedBreaker> {
        if node == NodeId::ONLY {
            return Arc::clone(&self.only);
        }
        let others = self.others.read().unwrap_or_else(PoisonError::into_inner);
        if let Some(breaker) = others.get(&node) {
            return Arc::clone(breaker);
        }
        drop(others);
        let mut others = self.others.write().unwrap_or_else(PoisonError::into_inner);
        // Nodes come rarely, and usually others go then.
        others.retain(|other, _| *other == node || store.has_node(*other));
        if others.len() >= MAX_NODES {
            return Arc::clone(&self.only);
        }
        let new = || Arc::new(SharedBreaker::new(self.config, node, &self.states));
        Arc::clone(others.entry(node).or_insert_with(new))
    }

    fn all(&self) -> Vec<Arc<SharedBreaker>> {
        let others = self.others.read().unwrap_or_else(PoisonError::into_inner);
        [&self.only].into_iter().chain(others.values()).map(Arc::clone).collect()
    }
}

/// The rejection of a request by a breaker.
pub(in crate::store::resilience) struct Rejected;
