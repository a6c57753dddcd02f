//! The rules of a layer, the charges that they make for a request, and the hooks by which its response adjusts these.

use std::fmt;

use http::{Method, request::Parts};

use super::{Rule, rule::Adjustment};
use crate::{
    error::Error,
    policy::{Charge, Charges, Policy},
};

/// The rules of a layer, which are decided together.
///
/// [`RateLimitLayer`](crate::RateLimitLayer) has them inside. A layer of your own asks them for the charges of each
/// request, checks these, and makes an [`AdmittedRequest`](crate::layer::AdmittedRequest) of the decision:
///
/// ```
/// use http::{Request, Response};
/// use plimsoll::{
///     Decision, Error, Limiter, Policy, Quota, Rule, by,
///     layer::{AdmittedRequest, ResponseBody},
///     rule::Rules,
/// };
///
/// async fn handle(
///     limiter: &Limiter,
///     rules: &Rules,
///     request: Request<String>,
/// ) -> Result<Option<Response<ResponseBody<String>>>, Error> {
///     let (parts, body) = request.into_parts();
///     let request = rules.charges(&parts)?;
///     let checked = match limiter.check(request.charges.clone()).await {
///         Ok(Decision::Denied(_)) => return Ok(None),
///         Ok(Decision::Allowed(allowed)) => Ok(allowed),
///         Err(error) => Err(error),
///     };
///     let admitted = AdmittedRequest::new(limiter, request, checked)?;
///     let response = Response::new(body); // the work
///     Ok(Some(admitted.settle(response).await))
/// }
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Error> {
/// let rules = Rules::new(Rule::new(Policy::new("api", Quota::per_minute(1))?, by::constant("all")));
/// let limiter = Limiter::in_memory();
/// assert!(handle(&limiter, &rules, Request::default()).await?.is_some());
/// assert!(handle(&limiter, &rules, Request::default()).await?.is_none());
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone)]
pub struct Rules {
    rules: Vec<Rule>,
}

impl Rules {
    /// Creates the rules of a layer with one rule.
    #[must_use]
    pub fn new(rule: Rule) -> Self {
        // The metrics recorder may be younger than the policies.
        rule.start_counters();
        Self { rules: vec![rule] }
    }

    /// Adds a rule, which is decided in the same atomic step as the others.
    ///
    /// # Panics
    ///
    /// Panics if the rules and their [trials](Rule::trial) are more than [`Charges::MAX`], or if another rule
    /// has another policy of the same name: one name is one quota.
    #[track_caller]
    pub fn push(&mut self, rule: Rule) {
        let lines: usize = self.rules.iter().chain([&rule]).map(Rule::lines).sum();
        assert!(lines <= Charges::MAX, "a layer has at most {} rules", Charges::MAX);
        for policy in rule.policies() {
            let mut others = self.rules.iter().flat_map(Rule::policies);
            if let Some(other) = others.find(|it| *it == policy && !it.is_clone_of(policy)) {
                two_limits(other, policy);
            }
        }
        rule.start_counters();
        self.rules.push(rule);
    }

    /// Returns the policies of the rules, with their quotas, as text.
    pub(crate) fn description(&self) -> String {
        self.rules.iter().map(Rule::description).collect::<Vec<_>>().join(", ")
    }

    /// Makes every rule a shadow.
    pub(crate) fn shadow(&mut self) {
        self.rules = self.rules.drain(..).map(Rule::shadow).collect();
    }

    /// Returns the charges of a request. Call it once for each request, because the closures of [`Rule::only`]
    /// count the requests that they see.
    ///
    /// # Errors
    ///
    /// Returns an error if a rule charges the address of the peer, and the request has none.
    pub fn charges(&self, request: &Parts) -> Result<RequestCharges<'_>, Error> {
        let mut charges = RequestCharges::default();
        charges.add_all(self, request)?;
        Ok(charges)
    }
}

#[track_caller]
fn two_limits(one: &Policy, other: &Policy) -> ! {
    panic!(
        "a layer has two policies named {:?} ({} and {}), allowed is one: give each limit a name of its own, \
         or use clones of one policy",
        one.name(),
        one.quota(),
        other.quota()
    )
}

/// The charges that the [rules](Rules) make for a request.
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
    /// Adds the charges of a request, like [`Rules::charges`]. They are written to their place, because they are large.
    ///
    /// # Errors
    ///
    /// Returns an error if a rule charges the address of the peer, and the request has none.
    pub(crate) fn add_all(&mut self, rules: &'r Rules, request: &Parts) -> Result<(), Error> {
        for rule in rules.rules.iter().filter(|rule| rule.applies_to(request)) {
            let Some(charge) = rule.charge(request)? else { continue };
            let cost = charge.cost();
            let position = self.add(charge, rule, request);
            for policy in rule.trials() {
                let trial = rule.trial_of(policy, *self.charges[position].key(), cost);
                self.add(trial, rule, request);
            }
        }
        Ok(())
    }

    /// Adds a charge of a rule, with the hook for its adjustment. Returns its position.
    fn add(&mut self, charge: Charge<'r>, rule: &Rule, request: &Parts) -> usize {
        let cost = charge.cost();
        // Units in flight are released when the work has ended, whatever its outcome.
        let adjustment = rule.adjustment().filter(|_| !charge.quota().is_concurrent());
        let position = self.charges.add(charge);
        if cost > 0 && self.charges[position].cost() > cost {
            self.sum = Some(position);
        }
        if let Some(adjustment) = adjustment.cloned() {
            let is_head = request.method == Method::HEAD;
            self.hooks.push(ResponseHook { charge: position, cost, is_head, adjustment });
        }
        position
    }
}

impl fmt::Debug for RequestCharges<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RequestCharges").field("charges", &self.charges).finish_non_exhaustive()
    }
}
