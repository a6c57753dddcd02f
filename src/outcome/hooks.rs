//! The charges of a request, and the hooks that adjust them by its response.

use http::{Method, request::Parts};
use smallvec::SmallVec;

use crate::{
    policy::Charges,
    rule::{Adjustment, MissingPeer, Rule},
};

/// A charge that the response to its request adjusts.
#[derive(Clone)]
pub(crate) struct ResponseHook {
    /// The index of the charge in the check.
    pub(super) charge: usize,
    /// The units that this rule charged. The charge has more units if another rule charged the same
    /// key under the same policy.
    pub(super) cost: u64,
    /// True for HEAD, whose response has no body.
    pub(super) is_head: bool,
    pub(super) adjustment: Adjustment,
}

/// The hooks of one request. Most layers have at most one rule that charges by outcome.
pub(crate) type ResponseHooks = SmallVec<[ResponseHook; 1]>;

/// Applies `rules` to a request. Returns its charges, and a hook for each charge that depends on
/// the response.
///
/// # Errors
///
/// Returns an error if a rule charges the address of the peer, and the request has none.
#[inline]
pub(crate) fn charges<'r>(
    rules: impl Iterator<Item = &'r Rule>,
    request: &Parts,
) -> Result<(Charges<'r>, ResponseHooks), MissingPeer> {
    let (mut charges, mut hooks) = (Charges::default(), ResponseHooks::new());
    for rule in rules {
        let Some(charge) = rule.charge(request)? else { continue };
        let cost = charge.cost();
        let index = charges.add(charge);
        if let Some(adjustment) = rule.adjustment() {
            let (is_head, adjustment) = (request.method == Method::HEAD, adjustment.clone());
            hooks.push(ResponseHook { charge: index, cost, is_head, adjustment });
        }
    }
    Ok((charges, hooks))
}
