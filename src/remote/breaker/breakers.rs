//! The circuit breakers of a store, one for each of its nodes.

use std::{
    collections::HashMap,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
};

use smallvec::SmallVec;
use tokio::time::Instant;

use super::{BreakerConfig, CallOutcome, Permit, SharedBreaker};
use crate::{
    policy::Charge,
    store::{BreakerStatus, NodeId, Request, Status, Store},
    sync::RwLock,
};

/// The maximum number of nodes with a breaker of their own. Further nodes share one.
const MAX_BREAKERS: usize = 2_000;

/// The circuit breakers of a store, one for each of its [nodes](NodeId).
///
/// A node gets its breaker with the first request that depends on it. The breaker is dropped in two cases: the
/// prober finds no key that depends on the node, because it has left the store, or the breaker is closed and
/// there are too many.
#[derive(Debug)]
pub(in crate::remote) struct Breakers {
    config: BreakerConfig,
    /// The breaker of [`NodeId::ONLY`], which is the only one unless the store has several nodes.
    only: Arc<SharedBreaker>,
    /// At most [`MAX_BREAKERS`].
    others: RwLock<HashMap<NodeId, Arc<SharedBreaker>>>,
    /// The number of breakers that are not closed.
    not_closed: Arc<AtomicUsize>,
}

/// The permits of a request: one for each node that it depends on. The first one is kept in place,
/// so the permits of a store with one node need no allocation.
pub(in crate::remote) type Permits = SmallVec<[NodePermit; 1]>;

/// The permit of the breaker of one node.
#[derive(Debug)]
pub(in crate::remote) struct NodePermit {
    pub(in crate::remote) breaker: Arc<SharedBreaker>,
    pub(in crate::remote) permit: Permit,
}

impl Breakers {
    pub(in crate::remote) fn new(config: BreakerConfig) -> Self {
        let not_closed = Arc::<AtomicUsize>::default();
        let only = SharedBreaker::new(config, NodeId::ONLY, Arc::clone(&not_closed));
        Self { config, only: Arc::new(only), others: RwLock::default(), not_closed }
    }

    /// Returns whether a breaker of this request certainly rejects it. Takes no lock while all
    /// breakers are closed.
    #[inline]
    pub(in crate::remote) fn rejects(&self, store: &dyn Store, request: Request<'_>) -> bool {
        self.any_is_not_closed()
            && request.charges().any(|charge| self.rejects_charge(store, charge))
    }

    /// Returns whether the breaker of the node of this charge rejects all calls.
    #[inline]
    pub(in crate::remote) fn rejects_charge(&self, store: &dyn Store, charge: &Charge<'_>) -> bool {
        self.any_is_not_closed()
            && match store.node(charge) {
                NodeId::ONLY => self.only.rejects_all(),
                node => self.get(node).rejects_all(),
            }
    }

    /// Returns whether the breaker of the node of this charge is open. The replay sends the units of a key only once,
    /// so it sends none while the breaker is open.
    pub(in crate::remote) fn is_open(&self, store: &dyn Store, charge: &Charge<'_>) -> bool {
        self.any_is_not_closed()
            && match store.node(charge) {
                NodeId::ONLY => self.only.is_open(),
                node => self.get(node).is_open(),
            }
    }

    /// Requests a permit from the breaker of each node that the request depends on. If a breaker
    /// rejects the request, the permits of the others are returned, and `last_resort` may still
    /// give one.
    ///
    /// An `urgent` request is not subject to the limits of calls in flight.
    ///
    /// # Errors
    ///
    /// Returns [`Rejected`] if a breaker rejects the request.
    pub(in crate::remote) fn try_acquire(
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

    /// Drops the breaker of a node that has left the store.
    pub(in crate::remote) fn remove(&self, node: NodeId) {
        self.others.write().remove(&node);
    }

    /// Adds the state of the breakers to the status of the store.
    pub(in crate::remote) fn add_to(&self, status: Status) -> Status {
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

    /// Ends the probers of all breakers.
    pub(in crate::remote) fn stop(&self) {
        self.all().iter().for_each(|breaker| breaker.stop());
    }

    /// Returns the breakers of the nodes that a request depends on, each once.
    fn of(&self, store: &dyn Store, request: Request<'_>) -> SmallVec<[Arc<SharedBreaker>; 1]> {
        let mut breakers = SmallVec::<[Arc<SharedBreaker>; 1]>::new();
        for charge in request.charges() {
            let node = store.node(charge);
            if !breakers.iter().any(|breaker| breaker.node() == node) {
                breakers.push(self.get(node));
            }
        }
        breakers
    }

    fn get(&self, node: NodeId) -> Arc<SharedBreaker> {
        if node == NodeId::ONLY {
            return Arc::clone(&self.only);
        }
        let others = self.others.read();
        if let Some(breaker) = others.get(&node) {
            return Arc::clone(breaker);
        }
        drop(others);
        let mut others = self.others.write();
        // Most of so many nodes have left.
        if others.len() >= MAX_BREAKERS {
            others.retain(|_, breaker| breaker.status() != BreakerStatus::Closed);
        }
        if others.len() >= MAX_BREAKERS {
            return Arc::clone(&self.only);
        }
        let new = || SharedBreaker::new(self.config, node, Arc::clone(&self.not_closed));
        Arc::clone(others.entry(node).or_insert_with(|| Arc::new(new())))
    }

    fn any_is_not_closed(&self) -> bool {
        self.not_closed.load(Ordering::Relaxed) > 0
    }

    fn all(&self) -> Vec<Arc<SharedBreaker>> {
        let others = self.others.read();
        [&self.only].into_iter().chain(others.values()).map(Arc::clone).collect()
    }
}

/// The rejection of a request by a breaker.
pub(in crate::remote) struct Rejected;

#[cfg(test)]
mod tests {
    use std::{slice, time::Duration};

    use super::*;
    use crate::{
        policy::{Charge, Policy},
        quota::Quota,
        store::Answer,
    };

    /// A store whose keys are the numbers of their nodes.
    #[derive(Debug)]
    struct Nodes;

    impl Store for Nodes {
        fn call(&self, _: Request<'_>, _: Option<std::time::Instant>) -> Answer {
            Answer::pending(std::future::pending())
        }

        fn node(&self, charge: &Charge<'_>) -> NodeId {
            NodeId(charge.cost() as u32)
        }
    }

    fn policy() -> Policy {
        Policy::new("p", Quota::per_minute(10)).expect("valid")
    }

    fn permits(breakers: &Breakers, store: &Nodes, nodes: &[u32]) -> Result<Permits, Rejected> {
        let policy = policy();
        let charges: Vec<_> =
            nodes.iter().map(|node| policy.charge("alice", u64::from(*node))).collect();
        breakers.try_acquire(store, Request::Acquire(&charges), Instant::now(), false, |_| None)
    }

    fn record(permits: Permits, outcome: CallOutcome) {
        for NodePermit { breaker, permit } in permits {
            breaker.record(permit, Instant::now(), outcome);
        }
    }

    #[test]
    fn a_request_needs_the_permits_of_all_of_its_nodes() {
        let (store, breakers) = (Nodes, Breakers::new(BreakerConfig::default()));
        for _ in 0..10 {
            let failed = permits(&breakers, &store, &[3]).ok().expect("closed");
            record(failed, CallOutcome::Failure);
        }
        assert!(permits(&breakers, &store, &[3]).is_err());
        assert!(permits(&breakers, &store, &[1, 3]).is_err());
        assert_eq!(permits(&breakers, &store, &[1, 2, 1]).ok().expect("closed").len(), 2);
        let status = breakers.add_to(Status::default());
        assert!(matches!(status.breaker, Some(BreakerStatus::Open { .. })), "{status:?}");
        assert_eq!(status.open_breakers, 1);
    }

    #[test]
    fn a_rejected_request_returns_its_permits() {
        let (store, breakers) = (Nodes, Breakers::new(BreakerConfig::default()));
        for node in [1, 2] {
            for _ in 0..10 {
                let failed = permits(&breakers, &store, &[node]).ok().expect("closed");
                record(failed, CallOutcome::Failure);
            }
        }
        // Node 1 is half-open, and lets one call through at a time.
        let half_open = breakers.get(NodeId(1));
        let later = Instant::now() + Duration::from_secs(1);
        let probe = half_open.try_probe(later).expect("it is due");
        half_open.record(probe, later, CallOutcome::Success);
        let later = later + Duration::from_millis(1);
        let policy = policy();
        let both = [policy.charge("alice", 1), policy.charge("alice", 2)];
        let of = |charges: &[Charge<'_>]| {
            breakers.try_acquire(&store, Request::Acquire(charges), later, false, |_| None)
        };
        for _ in 0..3 {
            assert!(of(&both).is_err(), "node 2 is open");
        }
        let held = of(slice::from_ref(&both[0])).ok().expect("no permit is left behind");
        assert!(of(slice::from_ref(&both[0])).is_err(), "one at a time");
        drop(held);
    }

    #[test]
    fn breakers_of_nodes_that_have_left_are_dropped() {
        let (store, breakers) = (Nodes, Breakers::new(BreakerConfig::default()));
        let fail = |node| {
            for _ in 0..10 {
                let failed = permits(&breakers, &store, &[node]).ok().expect("closed");
                record(failed, CallOutcome::Failure);
            }
        };
        fail(1);
        for node in 2..3 * MAX_BREAKERS as u32 {
            assert!(permits(&breakers, &store, &[node]).is_ok());
            assert!(breakers.all().len() <= 1 + MAX_BREAKERS);
        }
        assert_eq!(breakers.add_to(Status::default()).open_breakers, 1, "the open one is kept");
        breakers.remove(NodeId(1));
        assert_eq!(breakers.add_to(Status::default()).open_breakers, 0);
        assert!(!breakers.any_is_not_closed(), "it is no longer counted");
    }
}
