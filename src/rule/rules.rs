//! The rules of a layer.

use std::ops::Deref;

use http::request::Parts;

use super::{MissingPeer, RequestCharges, Rule};
use crate::{
    error::{Error, ErrorKind},
    policy::{Charges, Policy},
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
        let rules = self.rules.iter().filter(|rule| rule.applies_to(request));
        let charges = RequestCharges::new(rules, request);
        charges.map_err(|_| Error::new(ErrorKind::Invalid, MissingPeer::TEXT))
    }
}

impl Deref for Rules {
    type Target = [Rule];

    fn deref(&self) -> &[Rule] {
        &self.rules
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
