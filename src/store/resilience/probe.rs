//! The request with which the breaker's prober asks the store.

use std::{sync::LazyLock, time::Duration};

use crate::{
    policy::{Charge, Policy},
    quota::{Algorithm, Quota},
    random,
};

/// The policy of probes. A peek under it runs the store's whole way of a check, and writes nothing.
static POLICY: LazyLock<Option<Policy>> = LazyLock::new(|| {
    let algorithm = Algorithm::TokenBucket { burst: 1 };
    let quota = Quota::new_with_algorithm(1, Duration::from_secs(1), algorithm).ok()?;
    Policy::new("tollgate-probe", quota).ok()
});

/// Returns a charge of nothing to a random key. In a cluster each probe so goes to another node, and
/// a node that is down keeps the breaker open no longer than a check would.
pub(super) fn charge() -> Option<Charge<'static>> {
    POLICY.as_ref().map(|policy| policy.charge(random::number(), 0))
}
