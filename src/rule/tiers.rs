//! Policies by tier.

use std::{borrow::Borrow, collections::HashMap, hash::Hash};

use http::request::Parts;

use super::Rule;
use crate::{key::IntoIdentity, policy::Policy};

/// A table of [`Policy`]s by tier, with a policy for all other requests.
///
/// A tier is a name or a value of an enum of the application: any `T` that can be hashed.
/// [`rule`](Self::rule) turns the table into a [`Rule`].
///
/// # Examples
///
/// The tiers of accounts, by name:
///
/// ```
/// use plimsoll::{Policy, Quota, by, rule::Tiers};
///
/// let tiers = Tiers::new(Policy::new("free", Quota::per_minute(10))?)
///     .tier("basic", Policy::new("basic", Quota::per_minute(100))?)
///     .tier("premium", Policy::new("premium", Quota::per_minute(1_000))?);
///
/// // An extension that the authentication layer leaves.
/// #[derive(Clone)]
/// struct Account { id: u64, tier: String }
///
/// let rule = tiers.rule(
///     |parts| Some(parts.extensions.get::<Account>()?.tier.clone()),
///     by::extension(|account: &Account| account.id),
/// );
/// # Ok::<(), plimsoll::Error>(())
/// ```
///
/// The variants of an enum:
///
/// ```
/// use plimsoll::{Policy, Quota, by, rule::Tiers};
///
/// #[derive(Clone, Copy, PartialEq, Eq, Hash)]
/// enum Plan { Basic, Premium }
///
/// let tiers = Tiers::new(Policy::new("free", Quota::per_minute(10))?)
///     .tier(Plan::Basic, Policy::new("basic", Quota::per_minute(100))?)
///     .tier(Plan::Premium, Policy::new("premium", Quota::per_minute(1_000))?);
/// let rule = tiers.rule(
///     |parts| parts.extensions.get::<Plan>().copied(),
///     by::header("x-account"),
/// );
/// # Ok::<(), plimsoll::Error>(())
/// ```
#[derive(Debug, Clone)]
pub struct Tiers<T = &'static str> {
    tiers: HashMap<T, Policy>,
    otherwise: Policy,
}

impl<T: Hash + Eq> Tiers<T> {
    /// Creates a table without tiers. Requests with an unknown tier, or without one, get the
    /// [`Policy`] `otherwise`. [`tier`](Self::tier) adds a tier.
    #[must_use]
    pub fn new(otherwise: Policy) -> Self {
        Self { tiers: HashMap::new(), otherwise }
    }

    /// Adds a tier with its [`Policy`], or replaces the policy of this tier.
    #[must_use]
    pub fn tier(mut self, tier: impl Into<T>, policy: Policy) -> Self {
        self.tiers.insert(tier.into(), policy);
        self
    }

    /// Returns the [`Policy`] of a tier, or the policy for all other requests.
    #[must_use]
    pub fn policy<Q>(&self, tier: Option<&Q>) -> &Policy
    where
        T: Borrow<Q>,
        Q: Hash + Eq + ?Sized,
    {
        tier.and_then(|tier| self.tiers.get(tier)).unwrap_or(&self.otherwise)
    }

    /// Creates a [`Rule`] with the policy of each request's tier. `tier` returns the tier of a request, for
    /// example from an extension that an earlier layer inserts. `identity` returns who is charged, as in
    /// [`Rule::new`].
    pub fn rule<C, F, K>(self, tier: C, identity: F) -> Rule
    where
        C: Fn(&Parts) -> Option<T> + Send + Sync + 'static,
        F: Fn(&Parts) -> K + Send + Sync + 'static,
        K: IntoIdentity,
        T: Send + Sync + 'static,
    {
        let policies = self.policies();
        Rule::tiered_among(self.chosen_by(tier), policies, identity)
    }

    /// Returns all policies by name, and the one for all other requests at the end.
    fn policies(&self) -> Vec<Policy> {
        let mut policies: Vec<_> = self.tiers.values().cloned().collect();
        policies.sort_by(|one, other| one.name().cmp(other.name()));
        policies.push(self.otherwise.clone());
        // Several tiers may have one policy.
        let mut known: Vec<Policy> = Vec::new();
        for policy in policies {
            if !known.iter().any(|other| other.is_clone_of(&policy)) {
                known.push(policy);
            }
        }
        known
    }

    /// Returns a closure that chooses the policy of each request.
    fn chosen_by<F>(self, tier: F) -> impl Fn(&Parts) -> Policy + Send + Sync + 'static
    where
        F: Fn(&Parts) -> Option<T> + Send + Sync + 'static,
        T: Send + Sync + 'static,
    {
        move |parts: &Parts| self.policy(tier(parts).as_ref()).clone()
    }
}
