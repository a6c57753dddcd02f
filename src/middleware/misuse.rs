//! The search for a charge that is made twice, in the first requests of a layer.

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

/// Looks for a charge that another rule or another layer has made to the same request: shadows and trials spend units,
/// too. `sum` is the index of a charge that adds up the charges of two rules. After the first
/// requests, it reads only one atomic.
pub(super) fn find_second_charge(
    requests: &FirstRequests,
    limiter: &Limiter,
    charges: &Charges<'_>,
    sum: Option<usize>,
    parts: &mut Parts,
) {
    let Some(_) = requests.count() else { return };
    let mut second = sum.and_then(|index| charges.get(index));
    let charged = parts.extensions.get_or_insert_default::<Charged>();
    for charge in charges.iter().filter(|charge| charge.cost() > 0) {
        let line = (limiter.id(), charge.policy().id(), *charge.key());
        if charged.0.contains(&line) {
            second.get_or_insert(charge);
        }
        charged.0.push(line);
    }
    if let Some(charge) = second {
        requests.end();
        telemetry::charged_twice(charge.policy().name());
    }
}
