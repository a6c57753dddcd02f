//! The charge with which a store is tested: by the breaker's prober, and when a store starts.

use std::{sync::LazyLock, time::Duration};

use crate::{
    policy::{Charge, Policy},
    quota::{Algorithm, Quota},
    random,
};

/// The policy of probes.
static PROBE_POLICY: LazyLock<Option<Policy>> = LazyLock::new(|| {
    let algorithm = Algorithm::TokenBucket { burst: 1 };
    let quota = Quota::new_with_algorithm(1, Duration::from_secs(1), algorithm).ok()?;
    Policy::new("tollgate-probe", quota).ok()
});

/// Returns a charge of 0 units to a random key. In a cluster, successive probes therefore go to
/// different nodes, so that one node that is down does not keep the breaker open.
pub(in crate::store) fn charge() -> Option<Charge<'static>> {
    PROBE_POLICY.as_ref().map(|policy| policy.charge(random::number(), 0))
}
