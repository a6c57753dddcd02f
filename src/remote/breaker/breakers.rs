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

use super::{BreakerConfig, SharedBreaker, breaker::Permit};
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
    /// The number of breakers that are open.
    open: Arc<AtomicUsize>,
}

/// The permits of a request: one for each node that it depends on. The first one is kept in place,
/// so the permits of a store with one node need no allocation.
pub(in crate::remote) type Permits = SmallVec<[NodePermit; 1]>;

/// The breakers of the nodes that a request depends on.
type NodeBreakers = SmallVec<[Arc<SharedBreaker>; 1]>;

/// The permit of the breaker of one node.
#[derive(Debug)]
pub(in crate::remote) struct NodePermit {
    pub(in crate::remote) breaker: Arc<SharedBreaker>,
    pub(in crate::remote) permit: Permit,
}

impl NodePermit {
    /// Requests the permits of a call that starts at `start`. Returns `None` if one of the breakers rejects it.
    pub(in crate::remote) fn try_acquire_all(
        breakers: NodeBreakers,
        start: Instant,
    ) -> Option<Permits> {
        // A probe that one breaker is due for must not be used up by a request that another one rejects.
        if breakers.len() > 1 && !breakers.iter().all(|breaker| breaker.admits(start)) {
            return None;
        }
        let permits = breakers.into_iter().map(|breaker| {
            let permit = breaker.try_acquire(start)?;
            Some(Self { breaker, permit })
        });
        permits.collect()
    }
}

impl Breakers {
    pub(in crate::remote) fn new(config: BreakerConfig) -> Self {
        let open = Arc::<AtomicUsize>::default();
        let only = SharedBreaker::new(config, NodeId::ONLY, Arc::clone(&open));
        Self { config, only: Arc::new(only), others: RwLock::default(), open }
    }

    /// Returns whether a breaker of this request certainly rejects it. Takes no lock while all
    /// breakers are closed.
    pub(in crate::remote) fn rejects(&self, store: &dyn Store, request: Request<'_>) -> bool {
        self.any_is_open()
            && request.charges().any(|charge| match store.node(charge) {
                NodeId::ONLY => self.only.rejects_all(),
                node => self.get(node).rejects_all(),
            })
    }

    /// Returns whether the breaker of the node of this charge is open. The replay sends the units of a key only once,
    /// so it sends none while the breaker is open.
    pub(in crate::remote) fn is_open(&self, store: &dyn Store, charge: &Charge<'_>) -> bool {
        self.any_is_open() && self.get(store.node(charge)).is_open()
    }

    /// Returns the breakers of the nodes that a request depends on, each once.
    pub(in crate::remote) fn of(&self, store: &dyn Store, request: Request<'_>) -> NodeBreakers {
        let mut breakers = NodeBreakers::new();
        for charge in request.charges() {
            let node = store.node(charge);
            if !breakers.iter().any(|breaker| breaker.node() == node) {
                breakers.push(self.get(node));
            }
        }
        breakers
    }

    /// Drops the breaker of a node that has left the store.
    pub(in crate::remote) fn remove(&self, node: NodeId) {
        self.others.write().remove(&node);
    }

    /// Adds the state of the breakers to the status of the store.
    pub(in crate::remote) fn add_to(&self, status: Status) -> Status {
        let breakers = self.all();
        let open = breakers.iter().filter(|breaker| breaker.is_open()).count();
        let worst =
            breakers.iter().map(|breaker| breaker.status()).max_by_key(|status| match status {
                BreakerStatus::Closed => None,
                BreakerStatus::Open { elapsed, .. } => Some(*elapsed),
            });
        Status { breaker: worst.or(status.breaker), open_breakers: open, ..status }
    }

    /// Ends the probers of all breakers.
    pub(in crate::remote) fn stop(&self) {
        self.all().iter().for_each(|breaker| breaker.prober.stop());
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
            others.retain(|_, breaker| breaker.is_open());
        }
        if others.len() >= MAX_BREAKERS {
            return Arc::clone(&self.only);
        }
        Arc::clone(others.entry(node).or_insert_with(|| {
            Arc::new(SharedBreaker::new(self.config, node, Arc::clone(&self.open)))
        }))
    }

    /// Returns whether a breaker is open.
    pub(in crate::remote) fn any_is_open(&self) -> bool {
        self.open.load(Ordering::Relaxed) > 0
    }

    fn all(&self) -> Vec<Arc<SharedBreaker>> {
        let others = self.others.read();
        [&self.only].into_iter().chain(others.values()).map(Arc::clone).collect()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::{super::CallOutcome, *};
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

    fn permits_at(start: Instant, breakers: &Breakers, nodes: &[u32]) -> Option<Permits> {
        let policy = policy();
        let charges: Vec<_> =
            nodes.iter().map(|node| policy.charge("alice", u64::from(*node))).collect();
        NodePermit::try_acquire_all(breakers.of(&Nodes, Request::Acquire(&charges)), start)
    }

    fn permits(breakers: &Breakers, nodes: &[u32]) -> Option<Permits> {
        permits_at(Instant::now(), breakers, nodes)
    }

    fn fail_at(now: Instant, breakers: &Breakers, node: u32) {
        for _ in 0..10 {
            for NodePermit { breaker, permit } in
                permits_at(now, breakers, &[node]).expect("closed")
            {
                breaker.record(permit, now, CallOutcome::Failure);
            }
        }
    }

    fn fail(breakers: &Breakers, node: u32) {
        fail_at(Instant::now(), breakers, node);
    }

    #[test]
    fn a_request_needs_the_permits_of_all_of_its_nodes() {
        let breakers = Breakers::new(BreakerConfig::default());
        fail(&breakers, 3);
        assert!(permits(&breakers, &[3]).is_none());
        assert!(permits(&breakers, &[1, 3]).is_none());
        assert_eq!(permits(&breakers, &[1, 2, 1]).expect("closed").len(), 2);
        let status = breakers.add_to(Status::default());
        assert!(matches!(status.breaker, Some(BreakerStatus::Open { .. })), "{status:?}");
        assert_eq!(status.open_breakers, 1);
    }

    #[test]
    fn a_request_that_a_breaker_rejects_leaves_the_probe_of_another_to_the_next_one() {
        let breakers = Breakers::new(BreakerConfig::default());
        let start = Instant::now() + Duration::from_secs(1);
        fail_at(start, &breakers, 1);
        let later = start + Duration::from_secs(10);
        fail_at(later, &breakers, 2);
        for nodes in [[1, 2], [2, 1]] {
            assert!(
                permits_at(later, &breakers, &nodes).is_none(),
                "the second one has just opened"
            );
        }
        let probe = permits_at(later, &breakers, &[1]).expect("its probe is due");
        assert!(probe[0].permit.is_probe);
        assert!(permits_at(later, &breakers, &[1]).is_none());
    }

    #[test]
    fn breakers_of_nodes_that_have_left_are_dropped() {
        let breakers = Breakers::new(BreakerConfig::default());
        fail(&breakers, 1);
        for node in 2..3 * MAX_BREAKERS as u32 {
            assert!(permits(&breakers, &[node]).is_some());
            assert!(breakers.all().len() <= 1 + MAX_BREAKERS);
        }
        assert_eq!(breakers.add_to(Status::default()).open_breakers, 1, "the open one is kept");
        breakers.remove(NodeId(1));
        assert_eq!(breakers.add_to(Status::default()).open_breakers, 0);
        assert!(!breakers.any_is_open(), "it is no longer counted");
    }
}
