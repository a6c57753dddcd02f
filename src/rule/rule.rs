//! How a request becomes a charge.

use std::{fmt, sync::Arc};

use http::{request::Parts, response};

use crate::{
    key::Identity,
    policy::{Charge, OnFailure, Policy},
};

/// How a request becomes a charge: which policy, who is charged, and how much.
///
/// All closures see the head of the request and return owned data. They are called on the path of
/// every request and cannot wait: what needs a database belongs in an earlier layer that leaves an
/// extension behind.
///
/// ```
/// use http::Method;
/// use tollgate::{Key, Policy, Quota, Rule, by};
///
/// let api = Policy::new("api", Quota::per_minute(100))?;
/// let per_client = Rule::new(api, by::header("x-api-key"))
///     .cost(|parts| if parts.method == Method::GET { 1 } else { 10 });
///
/// let tenant = Policy::new("tenant", Quota::per_day(50_000))?;
/// let per_tenant = Rule::new(tenant, |parts| parts.headers.get("x-tenant").map(Key::from));
/// # Ok::<(), tollgate::Error>(())
/// ```
#[derive(Clone)]
pub struct Rule {
    policy: Choice,
    identity: Ask<Identity>,
    cost: Option<Ask<u64>>,
    only: Option<Ask<bool>>,
    shadow: bool,
    on_failure: OnFailure,
    pub(crate) outcome: Option<ByOutcome>,
}

/// What is asked of the head of a request.
pub(crate) type Ask<T> = Arc<dyn Fn(&Parts) -> T + Send + Sync>;

#[derive(Clone)]
enum Choice {
    Fixed(Policy),
    PerRequest(Ask<Policy>),
}

/// What the response says of the charge that its request was admitted with.
#[derive(Clone)]
pub(crate) enum ByOutcome {
    /// The charge is given back if the head of the response says so.
    Refund(Arc<dyn Fn(&response::Parts) -> bool + Send + Sync>),
    /// The charge becomes what the length of the body says, when it has ended.
    Length(Arc<dyn Fn(u64) -> u64 + Send + Sync>),
    /// The charge becomes what the handler has counted, when the body has ended.
    Tally,
}

impl Rule {
    /// Charges whom `identity` names 1 unit under `policy`.
    ///
    /// The closure returns anything that converts into an [`Identity`]: a [`Key`](crate::Key), an
    /// option of one (`None` is [`Identity::Unknown`], charged to one key that all such requests
    /// share), or an `Identity`. [`by`](crate::by) has ready-made ones.
    pub fn new<F, K>(policy: Policy, identity: F) -> Self
    where
        F: Fn(&Parts) -> K + Send + Sync + 'static,
        K: Into<Identity>,
    {
        Self::with(Choice::Fixed(policy), identity)
    }

    /// As [`new`](Self::new), with a policy chosen for each request, by tier or by route.
    ///
    /// ```
    /// use tollgate::{Policy, Quota, Rule, by};
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
    /// # Ok::<(), tollgate::Error>(())
    /// ```
    pub fn tiered<C, F, K>(choose: C, identity: F) -> Self
    where
        C: Fn(&Parts) -> Policy + Send + Sync + 'static,
        F: Fn(&Parts) -> K + Send + Sync + 'static,
        K: Into<Identity>,
    {
        Self::with(Choice::PerRequest(Arc::new(choose)), identity)
    }

    fn with<F, K>(policy: Choice, identity: F) -> Self
    where
        F: Fn(&Parts) -> K + Send + Sync + 'static,
        K: Into<Identity>,
    {
        Self {
            policy,
            identity: Arc::new(move |parts| identity(parts).into()),
            cost: None,
            only: None,
            shadow: false,
            on_failure: OnFailure::default(),
            outcome: None,
        }
    }

    /// Charges only the requests that match; others pass this rule by.
    ///
    /// ```
    /// use tollgate::{Policy, Quota, Rule, by, route};
    ///
    /// let logins = Policy::new("logins", Quota::per_minute(3))?;
    /// let rule = Rule::new(logins, by::peer_ip()).only(route::is("POST /login"));
    /// # Ok::<(), tollgate::Error>(())
    /// ```
    #[must_use]
    pub fn only<F>(mut self, matches: F) -> Self
    where
        F: Fn(&Parts) -> bool + Send + Sync + 'static,
    {
        self.only = Some(Arc::new(matches));
        self
    }

    /// What a request costs, in units. A cost of 0 spends nothing. [`cost`](mod@crate::cost) has
    /// ready-made ones.
    #[must_use]
    pub fn cost<F>(mut self, cost: F) -> Self
    where
        F: Fn(&Parts) -> u64 + Send + Sync + 'static,
    {
        self.cost = Some(Arc::new(cost));
        self
    }

    /// A trial: decided and reported, but it denies nobody and shows in no header.
    #[must_use]
    pub fn shadow(mut self) -> Self {
        self.shadow = true;
        self
    }

    /// What becomes of a request when the store cannot answer.
    #[must_use]
    pub fn with_on_failure(mut self, on_failure: OnFailure) -> Self {
        self.on_failure = on_failure;
        self
    }

    /// Charges before the request, and gives the charge back if the response says so: to count
    /// only failures. Concurrent requests cannot slip past the limit meanwhile.
    ///
    /// ```
    /// use tollgate::{Policy, Quota, Rule, by};
    ///
    /// let failed = Policy::new("failed-logins", Quota::per_minute(3))?;
    /// let rule = Rule::new(failed, by::header("x-account"))
    ///     .refund_if(|response| response.status.is_success());
    /// # Ok::<(), tollgate::Error>(())
    /// ```
    ///
    /// Replaces [`cost_of_body`](Self::cost_of_body).
    #[must_use]
    pub fn refund_if<F>(mut self, refund: F) -> Self
    where
        F: Fn(&response::Parts) -> bool + Send + Sync + 'static,
    {
        self.outcome = Some(ByOutcome::Refund(Arc::new(refund)));
        self
    }

    /// Charges [`cost`](Self::cost) before the request as an estimate, and settles what `cost`
    /// makes of the number of bytes in the response's body when that has ended or is dropped: a
    /// client that hangs up pays for what was sent.
    ///
    /// Replaces [`refund_if`](Self::refund_if).
    #[must_use]
    pub fn cost_of_body<F>(mut self, cost: F) -> Self
    where
        F: Fn(u64) -> u64 + Send + Sync + 'static,
    {
        self.outcome = Some(ByOutcome::Length(Arc::new(cost)));
        self
    }

    /// Charges [`cost`](Self::cost) before the request as an estimate, and settles what the
    /// [`Tally`](crate::Tally) in the response's extensions has counted when the body has ended or
    /// is dropped: tokens of a language model, rows, bytes before compression. Of a response
    /// without a tally the estimate stays.
    ///
    /// Replaces [`refund_if`](Self::refund_if) and [`cost_of_body`](Self::cost_of_body).
    #[must_use]
    pub fn settle_tally(mut self) -> Self {
        self.outcome = Some(ByOutcome::Tally);
        self
    }

    /// The charge for a request; `None` if it is exempt.
    pub(crate) fn charge(&self, parts: &Parts) -> Option<Charge<'_>> {
        if self.only.as_ref().is_some_and(|only| !only(parts)) {
            return None;
        }
        let key = (self.identity)(parts).key()?;
        let cost = self.cost.as_ref().map_or(1, |cost| cost(parts));
        let charge = match &self.policy {
            Choice::Fixed(policy) => policy.charge(key, cost),
            Choice::PerRequest(choose) => choose(parts).charge(key, cost).into_owned(),
        };
        let charge = charge.with_on_failure(self.on_failure);
        Some(if self.shadow { charge.shadow() } else { charge })
    }
}

impl fmt::Debug for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut debug = f.debug_struct("Rule");
        match &self.policy {
            Choice::Fixed(policy) => debug.field("policy", policy),
            Choice::PerRequest(_) => debug.field("policy", &format_args!("chosen per request")),
        };
        debug
            .field("shadow", &self.shadow)
            .field("on_failure", &self.on_failure)
            .finish_non_exhaustive()
    }
}
