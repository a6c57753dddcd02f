//! One charge: a cost for a key under a policy, and what happens if its check fails.

use std::{borrow::Cow, mem::discriminant};

use super::Policy;
use crate::{error::Error, key::Key, quota::Quota};

/// A cost in units for a [`Key`] under a [`Policy`]: one line of a check.
///
/// [`Policy::charge`] creates it, with the [`Quota`] that is in force at that time. It borrows the
/// policy, so that threads which use the same policy do not contend for its reference count;
/// [`into_owned`](Self::into_owned) removes the borrow.
///
/// ```
/// use plimsoll::{Limiter, OnFailure, Policy, Quota};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), plimsoll::Error> {
/// let limiter = Limiter::in_memory();
/// let search = Policy::new("search", Quota::per_minute(100))?;
///
/// // A batch takes as many units as are left, at least 1 and at most 500.
/// let batch = search.charge("alice", 1).up_to(500).with_on_failure(OnFailure::Deny);
/// let decision = limiter.check(batch).await?;
/// assert_eq!(decision.outcomes().get(0).expect("one charge").granted(), 100);
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone)]
pub struct Charge<'p> {
    policy: Cow<'p, Policy>,
    key: Key,
    quota: Quota,
    cost: u64,
    max_cost: u64,
    /// True if the units between `cost` and `max_cost` are a lease.
    lease: bool,
    shadow: bool,
    /// `None` if the caller has set none.
    on_failure: Option<OnFailure>,
    /// True if the quota is that of this charge, and not the policy's.
    has_own_quota: bool,
    /// True if the quota is the one that was set for the key.
    has_key_quota: bool,
    /// The number of equal shares into which the quota is divided. The charge is made against one of
    /// them.
    shares: u32,
}

impl<'p> Charge<'p> {
    #[inline]
    pub(crate) fn new(policy: &'p Policy, key: Key, cost: u64) -> Self {
        let key_quota = policy.key_quota(&key);
        Self {
            policy: Cow::Borrowed(policy),
            key,
            quota: key_quota.unwrap_or_else(|| policy.quota()),
            cost,
            max_cost: cost,
            lease: false,
            shadow: false,
            on_failure: None,
            has_own_quota: false,
            has_key_quota: key_quota.is_some(),
            shares: 1,
        }
    }

    /// Charges as many units as are free, from [`cost`](Self::cost) to `max_cost`: for work in
    /// batches. [`Outcome::granted`](crate::Outcome::granted) returns the number of units.
    #[must_use]
    pub fn up_to(mut self, max_cost: u64) -> Self {
        self.max_cost = max_cost.max(self.cost);
        self.lease = false;
        self
    }

    /// Charges like [`up_to`](Self::up_to), but at most half of the units that are free beyond
    /// [`cost`](Self::cost): for units that are taken in advance, so that others find some as well.
    ///
    /// If `free` units are free, the store grants at most `cost + (free - cost) / 2`, rounded down.
    #[must_use]
    pub fn lease_up_to(self, max_cost: u64) -> Self {
        Self { lease: true, ..self.up_to(max_cost) }
    }

    /// Charges under `quota` instead of the [quota of the policy](Policy::quota): for limits that
    /// differ from key to key, such as those in the contracts of customers.
    ///
    /// The units count under the name of the [`Policy`], which headers, events and metrics show. A
    /// key keeps what it has spent when its quota changes from one charge to the next, as with
    /// [`Policy::set_quota`]: [`live_limits`](crate::live_limits#a-quota-for-each-key) states the
    /// bounds. [`set_quota`](Policy::set_quota) does not change this charge. If a quota is
    /// [set for the key](Policy::set_key_quota), that one applies.
    ///
    /// If a check has several charges of this policy and key, they are summed, and the quota of the
    /// first one applies.
    ///
    /// ```
    /// use plimsoll::{Limiter, Policy, Quota};
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), plimsoll::Error> {
    /// let limiter = Limiter::in_memory();
    /// let api = Policy::new("api", Quota::per_minute(100))?;
    ///
    /// // The contract of this customer.
    /// let agreed = Quota::per_minute(5_000);
    /// let decision = limiter.check(api.charge("acme", 1).with_quota(agreed)).await?;
    /// assert_eq!(decision.binding().expect("one charge").standing().remaining(), 4_999);
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    #[inline]
    pub fn with_quota(mut self, quota: Quota) -> Self {
        if !self.has_key_quota {
            self.quota = quota;
        }
        self.has_own_quota = true;
        self
    }

    /// Makes this a shadow charge, which is decided and reported but never denies a check.
    ///
    /// Its units are spent only if it passes and the check is admitted. Otherwise the charge is not
    /// made: it is not in the [`Receipt`](crate::Receipt), so it is neither refunded nor settled.
    #[must_use]
    pub fn shadow(mut self) -> Self {
        self.shadow = true;
        self
    }

    /// Sets what happens to the request when the store cannot answer. The default is
    /// [`OnFailure::Local`]. In [`Limiter::until_ready`](crate::Limiter::until_ready), a charge for which
    /// this is not called waits until the store answers again.
    #[must_use]
    pub fn with_on_failure(mut self, on_failure: OnFailure) -> Self {
        self.on_failure = Some(on_failure);
        self
    }

    /// Sets what happens when the store cannot answer, unless it is set already.
    #[must_use]
    pub(crate) fn or_on_failure(mut self, on_failure: OnFailure) -> Self {
        self.on_failure.get_or_insert(on_failure);
        self
    }

    /// Returns the same charge with a [`Policy`] handle of its own.
    #[must_use]
    pub fn into_owned(self) -> Charge<'static> {
        Charge { policy: Cow::Owned(self.policy.into_owned()), ..self }
    }

    /// Returns the policy.
    #[must_use]
    pub fn policy(&self) -> &Policy {
        &self.policy
    }

    /// Returns the key that is charged.
    #[must_use]
    pub fn key(&self) -> &Key {
        &self.key
    }

    /// Returns the quota when the charge was made: that of the [key](Policy::set_key_quota), or of
    /// [`with_quota`](Self::with_quota), or of the policy.
    #[must_use]
    pub fn quota(&self) -> &Quota {
        &self.quota
    }

    /// Returns the cost in units: the least that is charged.
    #[must_use]
    pub fn cost(&self) -> u64 {
        self.cost
    }

    /// Returns the most units that are charged: the [`cost`](Self::cost), unless
    /// [`up_to`](Self::up_to) or [`lease_up_to`](Self::lease_up_to) has set another number.
    #[must_use]
    pub fn max_cost(&self) -> u64 {
        self.max_cost
    }

    /// Returns whether the units beyond the [`cost`](Self::cost) are a
    /// [lease](Self::lease_up_to).
    #[must_use]
    pub fn is_lease(&self) -> bool {
        self.lease
    }

    /// Returns whether this is a [shadow](Self::shadow) charge.
    #[must_use]
    pub fn is_shadow(&self) -> bool {
        self.shadow
    }

    /// Returns what happens to the request when the store cannot answer.
    #[must_use]
    pub fn on_failure(&self) -> OnFailure {
        self.on_failure.unwrap_or_default()
    }

    /// Returns whether both charges have the same policy, key and shadow flag, so that they are
    /// decided as one.
    #[inline]
    pub(crate) fn is_same_line(&self, other: &Self) -> bool {
        self.policy == other.policy && self.shadow == other.shadow && self.key == other.key
    }

    /// Adds the units of another charge of the same line. The stricter [`OnFailure`] applies.
    pub(super) fn add(&mut self, other: &Self) {
        self.on_failure = OnFailure::stricter_of(self.on_failure, other.on_failure);
        self.cost = self.cost.saturating_add(other.cost);
        self.max_cost = self.max_cost.saturating_add(other.max_cost);
        self.lease |= other.lease;
    }

    /// Returns the current quota of the key, or else of the policy. Returns the quota of this charge if it
    /// is [its own](Self::with_quota), or if the algorithm of the current quota is another one.
    pub(crate) fn quota_in_force(&self) -> Quota {
        let quota = match self.policy.key_quota(&self.key) {
            Some(quota) => quota,
            None if self.has_own_quota => return self.quota,
            None => self.policy.quota(),
        };
        let quota = quota.share(self.shares);
        let same = discriminant(&quota.algorithm()) == discriminant(&self.quota.algorithm());
        if same { quota } else { self.quota }
    }

    /// Returns the same charge against one of `shares` equal shares of the quota.
    pub(crate) fn share(&self, shares: u32) -> Self {
        Self { quota: self.quota.share(shares), shares, ..self.clone() }
    }

    /// Returns the charge that leases units: at least `cost` and at most `max`.
    pub(crate) fn leasing(&self, cost: u64, max: u64) -> Self {
        Self { cost, ..self.clone() }.lease_up_to(max)
    }

    /// Returns the same charge for another number of units, under the quota in force.
    pub(crate) fn with_cost(self, cost: u64) -> Self {
        Self { quota: self.quota_in_force(), cost, max_cost: cost, ..self }
    }
}

/// The treatment of a request when the store cannot answer, or when a lookup of a rule has failed.
///
/// Set it with [`Charge::with_on_failure`](crate::Charge::with_on_failure) or
/// [`Rule::with_on_failure`](crate::Rule::with_on_failure). [`Limiter::until_ready`](crate::Limiter::until_ready) waits
/// for the store instead, unless the charge says `Local` or `Allow`.
///
/// ```
/// use plimsoll::{OnFailure, Policy, Quota, Rule, by};
///
/// // A login must not be guessed while Redis is down.
/// let login = Rule::new(Policy::new("login", Quota::per_minute(5))?, by::peer_ip())
///     .with_on_failure(OnFailure::Deny);
/// // A health page must always answer.
/// let health = Rule::new(Policy::new("health", Quota::per_second(10))?, by::peer_ip())
///     .with_on_failure(OnFailure::Allow);
/// # Ok::<(), plimsoll::Error>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
#[cfg_attr(
    feature = "serde",
    derive(serde::Serialize, serde::Deserialize),
    serde(rename_all = "kebab-case")
)]
#[non_exhaustive]
pub enum OnFailure {
    /// This process decides by itself, under its share of the limit (see
    /// [`Resilience::instances`](crate::Resilience::instances)). After a failed lookup, the
    /// request is limited like one without a row. If the limiter has no fallback, a layer admits
    /// the request, and [`Limiter::check`](crate::Limiter::check) returns an error.
    #[default]
    Local,
    /// The request is admitted without a limit.
    Allow,
    /// A layer rejects the request with status 503 and the problem type
    /// `temporary-reduced-capacity`. [`Limiter::check`](crate::Limiter::check) returns an error.
    Deny,
}

impl OnFailure {
    /// Returns the stricter of two reactions that may not be set.
    pub(super) fn stricter_of(one: Option<Self>, other: Option<Self>) -> Option<Self> {
        match (one, other) {
            (Some(one), Some(other)) => Some(one.stricter(other)),
            // The default is at least as strict as `Local`.
            (None, Some(Self::Deny)) | (Some(Self::Deny), None) => Some(Self::Deny),
            (None, _) | (_, None) => None,
        }
    }

    /// Returns the stricter of two reactions.
    pub(crate) fn stricter(self, other: Self) -> Self {
        match (self, other) {
            (Self::Deny, _) | (_, Self::Deny) => Self::Deny,
            (Self::Local, _) | (_, Self::Local) => Self::Local,
            (Self::Allow, Self::Allow) => Self::Allow,
        }
    }
}

/// The treatment of a request whose check has failed, derived from all charges of the check.
#[derive(Debug, Clone, Copy)]
pub(crate) struct FailurePolicy {
    /// At least one charge is not a shadow.
    binds: bool,
    /// At least one charge that is not a shadow says [`OnFailure::Deny`].
    denies: bool,
}

impl FailurePolicy {
    /// The treatment of a request whose rows could not be loaded, although a rule denies it then.
    pub(crate) const DENY: Self = Self { binds: true, denies: true };

    /// Returns the treatment of a check of these charges.
    #[inline]
    pub(crate) fn of(charges: &[Charge<'_>]) -> Self {
        let mut binding = charges.iter().filter(|charge| !charge.is_shadow()).peekable();
        let binds = binding.peek().is_some();
        Self { binds, denies: binding.any(|charge| charge.on_failure() == OnFailure::Deny) }
    }

    /// Returns whether the request is admitted although its check has failed with `error`.
    ///
    /// - If the store could not decide, the request is admitted unless a charge says
    ///   [`OnFailure::Deny`].
    /// - An invalid check is a mistake of the application. The request is rejected, because admitting it
    ///   would lift the limit for good. A check that has waited in vain rejects it as well.
    /// - A check of shadows alone never rejects a request.
    pub(crate) fn admits(self, error: &Error) -> bool {
        if error.is_unavailable() { !self.denies } else { !self.binds }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::ErrorKind;

    #[test]
    fn only_charges_that_are_enforced_reject_a_request() {
        let policy = Policy::new("p", "1/s").unwrap();
        let charge = || policy.charge("k", 1);
        let [invalid, down] =
            [ErrorKind::Invalid, ErrorKind::Unavailable].map(|kind| Error::new(kind, "no"));
        for (charge, admits_invalid, admits_down) in [
            (charge(), false, true),
            (charge().with_on_failure(OnFailure::Allow), false, true),
            (charge().with_on_failure(OnFailure::Deny), false, false),
            (charge().shadow(), true, true),
            (charge().with_on_failure(OnFailure::Deny).shadow(), true, true),
        ] {
            let failure_policy = FailurePolicy::of(&[charge]);
            assert_eq!(failure_policy.admits(&invalid), admits_invalid, "{failure_policy:?}");
            assert_eq!(failure_policy.admits(&down), admits_down, "{failure_policy:?}");
        }
    }
}
