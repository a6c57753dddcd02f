//! The charges of a request, and the hooks by which its response adjusts them.

use std::fmt;

use http::{Method, request::Parts};

use super::{MissingPeer, Rule, rule::Adjustment};
use crate::policy::{Charge, Charges};

/// The charges that the [rules](super::Rules) make for a request.
#[derive(Default)]
pub struct RequestCharges<'r> {
    /// The charges. They are empty if no rule charges the request.
    pub charges: Charges<'r>,
    /// One for each charge that depends on the response.
    pub(crate) hooks: ResponseHooks,
    /// The index of a charge that is a sum: two rules charge units to the same key under the same policy.
    pub(crate) sum: Option<usize>,
}

/// The hooks of one request. Most layers have none, and a vector without elements is small.
pub(crate) type ResponseHooks = Vec<ResponseHook>;

/// A charge that the response to its request adjusts.
#[derive(Clone)]
pub(crate) struct ResponseHook {
    /// The index of the charge in the check.
    pub(crate) charge: usize,
    /// The units that this rule charged. The charge has more units if another rule charged the same
    /// key under the same policy.
    pub(crate) cost: u64,
    /// True for HEAD, whose response has no body.
    pub(crate) is_head: bool,
    pub(crate) adjustment: Adjustment,
}

impl<'r> RequestCharges<'r> {
    /// Applies rules to a request.
    ///
    /// # Errors
    ///
    /// Returns an error if a rule charges the address of the peer, and the request has none.
    pub(super) fn new(
        rules: impl Iterator<Item = &'r Rule>,
        request: &Parts,
    ) -> Result<Self, MissingPeer> {
        let mut charges = Self::default();
        for rule in rules {
            let Some(charge) = rule.charge(request)? else { continue };
            let (key, cost) = (*charge.key(), charge.cost());
            charges.add(charge, rule, request);
            for trial in rule.trials(key, cost) {
                charges.add(trial, rule, request);
            }
        }
        Ok(charges)
    }

    /// Adds a charge of a rule, with the hook for its adjustment.
    fn add(&mut self, charge: Charge<'r>, rule: &Rule, request: &Parts) {
        // Units in flight are released when the work has ended, whatever its outcome.
        let adjustment = rule.adjustment().filter(|_| !charge.quota().is_concurrent()).cloned();
        let cost = charge.cost();
        let charge = self.charges.add(charge);
        if cost > 0 && self.charges[charge].cost() > cost {
            self.sum = Some(charge);
        }
        if let Some(adjustment) = adjustment {
            let is_head = request.method == Method::HEAD;
            self.hooks.push(ResponseHook { charge, cost, is_head, adjustment });
        }
    }
}

impl fmt::Debug for RequestCharges<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RequestCharges").field("charges", &self.charges).finish_non_exhaustive()
    }
}
