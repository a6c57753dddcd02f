//! The rule, which determines the policy, the identity and the cost of a request.

use std::{fmt, sync::Arc};

use http::{request::Parts, response};

use super::{
    MISSING_PEER,
    policy_choice::{PolicyChoice, RequestFn},
};
use crate::{
    error::{Error, ErrorKind},
    key::{Identity, IntoIdentity, Key},
    policy::{Charge, OnFailure, Policy},
    quota::Quota,
    telemetry,
};

/// A rule that turns a request into a [`Charge`]: the [`Policy`], the [`Identity`] that is charged,
/// and the cost.
///
/// A rule is made of closures over the head of the request ([`Parts`]). They return owned data. The
/// middleware calls them for every request and does not await them. They read the result of an earlier layer with
/// [`by::extension`](crate::by::extension), such as the row of a client that
/// [plimsoll-lookup](https://docs.rs/plimsoll-lookup) has loaded from a database.
///
/// # Examples
///
/// One unit for each request of an API key:
///
/// ```
/// use plimsoll::{Policy, Quota, Rule, by};
///
/// let api = Policy::new("api", Quota::per_minute(100))?;
/// let rule = Rule::new(api, by::header("x-api-key"));
/// # Ok::<(), plimsoll::Error>(())
/// ```
///
/// A closure of your own chooses the key, and writes cost more than reads:
///
/// ```
/// use http::Method;
/// use plimsoll::{Key, OnFailure, Policy, Quota, Rule};
///
/// let tenant = Policy::new("tenant", Quota::per_day(50_000))?;
/// let rule = Rule::new(tenant, |parts| parts.headers.get("x-tenant").map(Key::from))
///     .cost(|parts| if parts.method == Method::GET { 1 } else { 10 })
///     .on_failure(OnFailure::Deny);
/// # Ok::<(), plimsoll::Error>(())
/// ```
#[derive(Clone)]
pub struct Rule {
    policy: PolicyChoice,
    identity: RequestFn<Identity>,
    quota: Option<RequestFn<Option<Quota>>>,
    cost: Option<RequestFn<u64>>,
    only: Option<RequestFn<bool>>,
    shadow: bool,
    trials: Vec<Policy>,
    on_failure: Option<OnFailure>,
    adjustment: Option<Adjustment>,
}

impl Rule {
    /// Creates a rule that charges the key of a request 1 unit under `policy`.
    ///
    /// The closure returns anything that [converts](IntoIdentity) into an [`Identity`]: a
    /// [`Key`], an `Option<Key>` or an `Identity`. `None` becomes [`Identity::Unknown`]: all such requests
    /// share one key. [`by`](crate::by) has ready-made closures.
    pub fn new<F, K>(policy: Policy, identity: F) -> Self
    where
        F: Fn(&Parts) -> K + Send + Sync + 'static,
        K: IntoIdentity,
    {
        Self::with_choice(PolicyChoice::Fixed(policy), identity)
    }

    /// Creates a rule like [`new`](Self::new), with a closure that chooses the [`Policy`] for each
    /// request, by tier or by route. For a table of tiers, use [`Tiers::rule`](crate::rule::Tiers::rule).
    ///
    /// ```
    /// use plimsoll::{Policy, Quota, Rule, by};
    ///
    /// let free = Policy::new("free", Quota::per_minute(10))?;
    /// let paid = Policy::new("paid", Quota::per_minute(1_000))?;
    /// let rule = Rule::tiered(
    ///     // Set by the gateway, which removes what clients send.
    ///     move |parts| match parts.headers.get("x-tier") {
    ///         Some(tier) if tier == "paid" => paid.clone(),
    ///         _ => free.clone(),
    ///     },
    ///     by::header("x-api-key"),
    /// );
    /// # Ok::<(), plimsoll::Error>(())
    /// ```
    pub fn tiered<C, F, K>(choose: C, identity: F) -> Self
    where
        C: Fn(&Parts) -> Policy + Send + Sync + 'static,
        F: Fn(&Parts) -> K + Send + Sync + 'static,
        K: IntoIdentity,
    {
        let choice = PolicyChoice::PerRequest { choose: Arc::new(choose), known: Vec::new() };
        Self::with_choice(choice, identity)
    }

    /// Creates a rule whose policy is chosen in this way.
    pub(super) fn with_choice<F, K>(policy: PolicyChoice, identity: F) -> Self
    where
        F: Fn(&Parts) -> K + Send + Sync + 'static,
        K: IntoIdentity,
    {
        Self {
            policy,
            identity: Arc::new(move |parts| identity(parts).into_identity()),
            quota: None,
            cost: None,
            only: None,
            shadow: false,
            trials: Vec::new(),
            on_failure: None,
            adjustment: None,
        }
    }

    /// Restricts the rule to requests for which `matches` returns true. Other requests are not
    /// charged. [`route::is`](crate::route::is) is a ready-made closure.
    ///
    /// The closure is called once for each request.
    ///
    /// ```
    /// use plimsoll::{Policy, Quota, Rule, by, route};
    ///
    /// let logins = Policy::new("logins", Quota::per_minute(3))?;
    /// let rule = Rule::new(logins, by::peer_ip()).only(route::is("POST /login"));
    /// # Ok::<(), plimsoll::Error>(())
    /// ```
    #[must_use]
    pub fn only<F>(mut self, matches: F) -> Self
    where
        F: Fn(&Parts) -> bool + Send + Sync + 'static,
    {
        self.only = Some(Arc::new(matches));
        self
    }

    /// Charges each request under the [`Quota`] that `quota` returns, instead of the quota of the
    /// policy: for customers with limits of their own. For `None`, the quota of the policy applies.
    ///
    /// The charges count under the name of the policy. A client whose quota changes keeps what it has
    /// spent: see [`Charge::with_quota`]. A quota that is [set for the key](Policy::set_key_quota) wins.
    ///
    /// ```
    /// use plimsoll::{Policy, Quota, Rule, by};
    ///
    /// // An extension that the authentication layer inserts.
    /// #[derive(Clone)]
    /// struct Customer { id: u64, per_minute: Option<Quota> }
    ///
    /// let api = Policy::new("api", Quota::per_minute(100))?;
    /// let rule = Rule::new(api, by::extension(|customer: &Customer| customer.id))
    ///     .quota(|parts| parts.extensions.get::<Customer>()?.per_minute);
    /// # Ok::<(), plimsoll::Error>(())
    /// ```
    #[must_use]
    pub fn quota<F, Q>(mut self, quota: F) -> Self
    where
        F: Fn(&Parts) -> Q + Send + Sync + 'static,
        Q: Into<Option<Quota>>,
    {
        self.quota = Some(Arc::new(move |parts| quota(parts).into()));
        self
    }

    /// Sets the cost of a request in units. The default is 1; a cost of 0 spends nothing.
    /// [`cost`](mod@crate::cost) has ready-made closures.
    #[must_use]
    pub fn cost<F>(mut self, cost: F) -> Self
    where
        F: Fn(&Parts) -> u64 + Send + Sync + 'static,
    {
        self.cost = Some(Arc::new(cost));
        self
    }

    /// Makes this rule a shadow. It is decided and reported, but it never denies a request, and no
    /// header shows it. See [`Charge::shadow`].
    #[must_use]
    pub fn shadow(mut self) -> Self {
        self.shadow = true;
        self
    }

    /// Tries out another policy on the requests that this rule charges, for the same key and cost: a
    /// looser limit, a stricter one, or another algorithm. It never denies a request, no header shows it,
    /// and it counts as if it were the only limit: see [`Charge::trial`].
    ///
    /// [`Policy::trial_counts`] and the metric `plimsoll_trials_total` compare the two.
    /// [`guide::trials`](crate::guide::trials) says when to use a trial, and when a
    /// [shadow](Self::shadow).
    ///
    /// The rule adjusts the trial by the response as it does its own charge, if the request was admitted.
    ///
    /// # Panics
    ///
    /// Panics if the rule has a policy of this name already: both would spend the same units.
    ///
    /// # Examples
    ///
    /// ```
    /// use plimsoll::{Policy, Quota, Rule, by};
    ///
    /// let api = Policy::new("api", Quota::per_minute(100))?;
    /// let looser = Policy::new("api-200", Quota::per_minute(200))?;
    /// let rule = Rule::new(api, by::header("x-api-key")).trial(looser);
    /// # Ok::<(), plimsoll::Error>(())
    /// ```
    #[must_use]
    #[track_caller]
    pub fn trial(mut self, policy: Policy) -> Self {
        let is_new = self.policies().all(|other| *other != policy);
        let name = policy.name();
        assert!(is_new, "the policy {name:?} of a rule is its trial too, allowed is another name");
        self.trials.push(policy);
        self
    }

    /// Sets the treatment of requests while the [store](crate::store::Store) cannot answer. The
    /// default is [`OnFailure::Local`], and [`OnFailure::Deny`] for calls that wait for their turn in
    /// [plimsoll-pace](https://docs.rs/plimsoll-pace).
    #[must_use]
    pub fn on_failure(mut self, on_failure: OnFailure) -> Self {
        self.on_failure = Some(on_failure);
        self
    }

    /// Refunds the charge if `refund` returns true for the head of the response. For example, a
    /// rule can count failed logins only.
    ///
    /// The charge is made before the request is served, so that concurrent requests cannot exceed
    /// the limit.
    ///
    /// ```
    /// use plimsoll::{Policy, Quota, Rule, by};
    ///
    /// let failed = Policy::new("failed-logins", Quota::per_minute(3))?;
    /// let rule = Rule::new(failed, by::header("x-account"))
    ///     .refund_if(|response| response.status.is_success());
    /// # Ok::<(), plimsoll::Error>(())
    /// ```
    ///
    /// A rule has one adjustment: this replaces [`cost_of_body`](Self::cost_of_body) and
    /// [`settle_tally`](Self::settle_tally).
    #[must_use]
    pub fn refund_if<F>(mut self, refund: F) -> Self
    where
        F: Fn(&response::Parts) -> bool + Send + Sync + 'static,
    {
        self.adjustment = Some(Adjustment::RefundIf(Arc::new(refund)));
        self
    }

    /// Settles the charge to `cost(bytes)` units, where `bytes` is the length of the body that was
    /// sent.
    ///
    /// Before the request, [`Rule::cost`] is charged as an estimate. The difference is settled when
    /// the body has ended or is dropped. A client that disconnects is charged for the bytes sent so
    /// far.
    ///
    /// A request with the method HEAD costs as much as GET: `bytes` is the length of the body that GET
    /// would get. If this length is not known, as with a stream, the estimate stays.
    ///
    /// A rule has one adjustment: this replaces [`refund_if`](Self::refund_if) and
    /// [`settle_tally`](Self::settle_tally).
    #[must_use]
    pub fn cost_of_body<F>(mut self, cost: F) -> Self
    where
        F: Fn(u64) -> u64 + Send + Sync + 'static,
    {
        self.adjustment = Some(Adjustment::CostOfBody(Arc::new(cost)));
        self
    }

    /// Settles the charge to the count of the [`Tally`](crate::layer::Tally) in the extensions of the
    /// response: tokens of a language model, rows, bytes before compression.
    ///
    /// Before the request, [`Rule::cost`] is charged as an estimate. The difference is settled when
    /// the body has ended or is dropped. If the response has no tally, the estimate stays.
    ///
    /// A rule has one adjustment: this replaces [`refund_if`](Self::refund_if) and
    /// [`cost_of_body`](Self::cost_of_body).
    #[must_use]
    pub fn settle_tally(mut self) -> Self {
        self.adjustment = Some(Adjustment::SettleTally);
        self
    }

    /// Returns whether the rule applies to a request.
    pub(super) fn applies_to(&self, parts: &Parts) -> bool {
        self.only.as_ref().is_none_or(|only| only(parts))
    }

    /// Returns the charge for a request to which the rule applies. It is `None` if the identity is
    /// [`Identity::Exempt`].
    ///
    /// # Errors
    ///
    /// Returns an error if the identity is [`Identity::NoPeer`], unless the rule is a shadow, which rejects
    /// no request.
    pub(super) fn charge(&self, parts: &Parts) -> Result<Option<Charge<'_>>, Error> {
        let identity = (self.identity)(parts);
        if matches!(identity, Identity::NoPeer) {
            telemetry::charge_without_peer();
            if self.shadow {
                return Ok(None);
            }
            return Err(Error::new(ErrorKind::Invalid, MISSING_PEER));
        }
        let Some(key) = identity.key() else { return Ok(None) };
        let cost = self.cost.as_ref().map_or(1, |cost| cost(parts));
        let charge = self.policy.charge(parts, key, cost);
        Ok(Some(self.adapt(charge, parts)))
    }

    fn adapt<'r>(&self, mut charge: Charge<'r>, parts: &Parts) -> Charge<'r> {
        if let Some(on_failure) = self.on_failure {
            charge = charge.with_on_failure(on_failure);
        }
        if let Some(quota) = self.quota.as_ref().and_then(|quota| quota(parts)) {
            charge = charge.with_quota(quota);
        }
        if self.shadow { charge.shadow() } else { charge }
    }

    /// Returns the policies on trial.
    pub(super) fn trials(&self) -> &[Policy] {
        &self.trials
    }

    /// Returns the charge of a policy on trial, for the key and the cost of the rule's own charge.
    pub(super) fn trial_of<'r>(&self, policy: &'r Policy, key: Key, cost: u64) -> Charge<'r> {
        let charge = policy.charge(key, cost).trial();
        match self.on_failure {
            Some(on_failure) => charge.with_on_failure(on_failure),
            None => charge,
        }
    }

    /// Returns the number of charges that the rule makes for a request.
    pub(super) fn lines(&self) -> usize {
        1 + self.trials.len()
    }

    /// Returns its policies, as far as they are known.
    pub(super) fn policies(&self) -> impl Iterator<Item = &Policy> {
        self.policy.known().iter().chain(&self.trials)
    }

    /// Starts the counters of its policies at 0, as far as they are known.
    pub(super) fn start_counters(&self) {
        self.policies().for_each(|policy| policy.counters().start());
        self.trials.iter().for_each(|policy| policy.counters().start_trial(policy.name()));
    }

    /// Returns the policy with its quota, and the special properties of the rule, as text.
    pub(crate) fn description(&self) -> String {
        let policy = self.policy.description();
        let mut text = match (self.shadow, self.on_failure.unwrap_or_default()) {
            (true, _) => format!("{policy} (shadow)"),
            (false, OnFailure::Allow) => format!("{policy} (allows if the store fails)"),
            (false, OnFailure::Deny) => format!("{policy} (denies if the store fails)"),
            (false, OnFailure::Local) => policy,
        };
        for trial in &self.trials {
            text = format!("{text}, {} (trial)", trial.description());
        }
        text
    }

    /// Returns the adjustment of the charge by the response, if there is one.
    pub(crate) fn adjustment(&self) -> Option<&Adjustment> {
        self.adjustment.as_ref()
    }
}

impl fmt::Debug for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Rule")
            .field("policy", &self.policy)
            .field("shadow", &self.shadow)
            .field("trials", &self.trials)
            .field("on_failure", &self.on_failure)
            .finish_non_exhaustive()
    }
}

/// An adjustment of a charge by the response to its request.
#[derive(Clone)]
pub(crate) enum Adjustment {
    /// Refunds the charge if the closure accepts the head of the response.
    RefundIf(Arc<dyn Fn(&response::Parts) -> bool + Send + Sync>),
    /// Settles the charge to a function of the length of the body, when the body has ended.
    CostOfBody(Arc<dyn Fn(u64) -> u64 + Send + Sync>),
    /// Settles the charge to the count of a [`Tally`](crate::layer::Tally), when the body has ended.
    SettleTally,
}
