//! The search for misuse of a layer, in its first requests.

use std::sync::Arc;

use http::request::Parts;

use crate::{
    key::Key,
    limiter::Limiter,
    policy::{Charge, Charges},
    telemetry::{self, FirstRequests},
};

/// The charges that layers have made to a request, in its extensions.
#[derive(Debug, Clone, Default)]
struct Charged(Arc<Vec<ChargedLine>>);

/// The key and the policy of a charge, and the limiter that decides it.
#[derive(Debug, Clone, PartialEq, Eq)]
struct ChargedLine {
    limiter: usize,
    policy: u64,
    key: Key,
}

impl ChargedLine {
    fn new(limiter: &Limiter, charge: &Charge<'_>) -> Self {
        Self { limiter: limiter.id(), policy: charge.policy().id(), key: *charge.key() }
    }
}

/// Looks for misuse in the charges of a request. After the first requests, it reads only one atomic of
/// the layer, and one of each policy.
#[inline]
pub(super) fn observe(
    requests: &FirstRequests,
    limiter: &Limiter,
    charges: &Charges<'_>,
    parts: &mut Parts,
) {
    observe_lines(requests, limiter, charges, parts);
    for charge in charges.iter().filter(|charge| charge.policy().key_watch().is_active()) {
        observe_key(charge);
    }
}

/// Looks for a charge that another rule of this layer, or another layer, has made to the same request.
/// Shadows and trials spend units too.
#[inline]
pub(crate) fn observe_lines(
    requests: &FirstRequests,
    limiter: &Limiter,
    charges: &Charges<'_>,
    parts: &mut Parts,
) {
    if requests.is_active() {
        find_second_charge(requests, limiter, charges, parts);
    }
}

#[cold]
fn find_second_charge(
    requests: &FirstRequests,
    limiter: &Limiter,
    charges: &Charges<'_>,
    parts: &mut Parts,
) {
    requests.count();
    let mut charged = parts.extensions.get::<Charged>().cloned().unwrap_or_default();
    for charge in charges.iter().filter(|charge| charge.cost() > 0) {
        let line = ChargedLine::new(limiter, charge);
        if charge.is_sum || charged.0.contains(&line) {
            requests.end();
            telemetry::charged_twice(charge.policy().name());
            return;
        }
        Arc::make_mut(&mut charged.0).push(line);
    }
    parts.extensions.insert(charged);
}

#[cold]
fn observe_key(charge: &Charge<'_>) {
    if let Some(charges) = charge.policy().key_watch().record(charge.key()) {
        telemetry::every_key_is_new(charge.policy().name(), charges);
    }
}
