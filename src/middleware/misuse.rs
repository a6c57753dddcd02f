//! The search for a layer that is added twice, in its first requests.

use http::request::Parts;

use crate::{
    key::Key,
    limiter::Limiter,
    policy::Charges,
    telemetry::{self, FirstRequests},
};

/// The charges that layers have made to a request, in its extensions: limiter, policy and key.
#[derive(Debug, Clone, Default)]
struct Charged(Vec<(usize, u64, Key)>);

/// Looks for a charge that another layer has made to the same request. After the first requests, it reads only one
/// atomic.
#[inline]
pub(super) fn find_second_layer(
    requests: &FirstRequests,
    limiter: &Limiter,
    charges: &Charges<'_>,
    parts: &mut Parts,
) {
    if !requests.is_active() {
        return;
    }
    requests.count();
    let charged = parts.extensions.get_or_insert_default::<Charged>();
    let by_others = charged.0.len();
    for charge in charges.iter().filter(|charge| charge.cost() > 0) {
        let line = (limiter.id(), charge.policy().id(), *charge.key());
        if charged.0[..by_others].contains(&line) {
            requests.end();
            telemetry::charged_twice(charge.policy().name());
        }
        charged.0.push(line);
    }
}
