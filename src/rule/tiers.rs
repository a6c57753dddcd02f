//! Policies by tier.

use std::sync::Arc;

use http::request::Parts;

use super::{Rule, policy_choice::PolicyChoice};
use crate::{key::IntoIdentity, policy::Policy};

/// A table of [`Policy`]s by tier, with a policy for all other requests.
///
/// A tier is a name or a value of an enum of the application: any `T` that can be compared.
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
    tiers: Vec<(T, Policy)>,
    otherwise: Policy,
}

impl<T: PartialEq> Tiers<T> {
    /// Creates a table without tiers. Requests with an unknown tier, or without one, get the
    /// [`Policy`] `otherwise`. [`tier`](Self::tier) adds a tier.
    #[must_use]
    pub fn new(otherwise: Policy) -> Self {
        Self { tiers: Vec::new(), otherwise }
    }

    /// Adds a tier with its [`Policy`], or replaces the policy of this tier.
    #[must_use]
    pub fn tier(mut self, tier: impl Into<T>, policy: Policy) -> Self {
        let tier = tier.into();
        self.tiers.retain(|(other, _)| *other != tier);
        self.tiers.push((tier, policy));
        self
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
        let known = self.policies();
        let choice = PolicyChoice::PerRequest {
            choose: Arc::new(move |parts: &Parts| {
                let tier = tier(parts);
                let found = self.tiers.iter().find(|(it, _)| Some(it) == tier.as_ref());
                found.map_or(&self.otherwise, |(_, policy)| policy).clone()
            }),
            known,
        };
        Rule::with_choice(choice, identity)
    }

    /// Returns all policies, and the one for all other requests at the end. Several tiers may have one policy.
    fn policies(&self) -> Vec<Policy> {
        let mut policies: Vec<Policy> = Vec::new();
        for policy in self.tiers.iter().map(|(_, policy)| policy).chain([&self.otherwise]) {
            if !policies.iter().any(|other| other.is_clone_of(policy)) {
                policies.push(policy.clone());
            }
        }
        policies
    }
}
