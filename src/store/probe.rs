//! The request with which a store is probed.

use std::{sync::LazyLock, time::Duration};

use super::{NodeId, Store};
use crate::{
    policy::{Charge, Policy},
    quota::{Algorithm, Quota},
    random,
};

/// The policy of probes. Its keys expire after a second.
static PROBE_POLICY: LazyLock<Option<Policy>> = LazyLock::new(|| {
    let algorithm = Algorithm::TokenBucket { burst: 1 };
    let quota = Quota::new_with_algorithm(1, Duration::from_secs(1), algorithm).ok()?;
    Policy::new("plimsoll-probe", quota).ok()
});

/// Returns a charge of 1 unit for a random key.
pub(crate) fn charge() -> Option<Charge<'static>> {
    PROBE_POLICY.as_ref().map(|policy| policy.charge(random::number(), 1))
}

/// The maximum number of random keys that are tried to find one that depends on a given node. For a
/// node of a cluster with a thousandth of the slots, this fails once in 20,000 times.
const MAX_PROBE_KEYS: usize = 10_000;

/// Returns the charge of a probe: 1 unit for a random key that depends on `node`. Returns `None` if
/// no such key was found.
///
/// A probe is a [`Force`](super::Request::Force) of this charge. It takes the same path through the
/// store as a check, and writes, so it also fails if the store answers but cannot write.
pub(crate) fn charge_on(store: &(impl Store + ?Sized), node: NodeId) -> Option<Charge<'static>> {
    let mut charges = (0..MAX_PROBE_KEYS).filter_map(|_| charge());
    if node == NodeId::ONLY { charges.next() } else { charges.find(|it| store.node(it) == node) }
}
