//! Policies by the name of a tier.

use std::collections::HashMap;

use http::request::Parts;

use crate::policy::Policy;

/// A table of [`Policy`]s by the name of a tier, with a policy for all other requests.
///
/// [`chosen_by`](Self::chosen_by) turns it into a closure for
/// [`Rule::tiered`](crate::Rule::tiered).
///
/// # Examples
///
/// ```
/// use tollgate::{Policy, Quota, Rule, Tiers, by};
///
/// let tiers = Tiers::or_else(Policy::new("free", Quota::per_minute(10))?)
///     .tier("basic", Policy::new("basic", Quota::per_minute(100))?)
///     .tier("premium", Policy::new("premium", Quota::per_minute(1_000))?);
///
/// // An extension that the authentication layer leaves.
/// #[derive(Clone)]
/// struct Account { id: u64, tier: &'static str }
///
/// let tier = tiers.chosen_by(|parts| Some(parts.extensions.get::<Account>()?.tier));
/// let rule = Rule::tiered(tier, by::extension(|account: &Account| account.id));
/// # Ok::<(), tollgate::Error>(())
/// ```
#[derive(Debug, Clone)]
pub struct Tiers {
    tiers: HashMap<Box<str>, Policy>,
    otherwise: Policy,
}

impl Tiers {
    /// Creates a table without tiers. Requests with an unknown tier, or without one, get the
    /// [`Policy`] `otherwise`. [`tier`](Self::tier) adds a tier.
    #[must_use]
    pub fn or_else(otherwise: Policy) -> Self {
        Self { tiers: HashMap::new(), otherwise }
    }

    /// Adds a tier with its [`Policy`], or replaces the tier of this name.
    #[must_use]
    pub fn tier(mut self, name: &str, policy: Policy) -> Self {
        self.tiers.insert(name.into(), policy);
        self
    }

    /// Returns the [`Policy`] of a tier, or the policy for all other requests.
    #[must_use]
    pub fn policy(&self, tier: Option<&str>) -> &Policy {
        tier.and_then(|tier| self.tiers.get(tier)).unwrap_or(&self.otherwise)
    }

    /// Returns a closure for [`Rule::tiered`](crate::Rule::tiered). `tier` returns the name of the
    /// tier of a request, from a header or from an extension that an earlier layer inserts.
    pub fn chosen_by<F>(self, tier: F) -> impl Fn(&Parts) -> Policy + Send + Sync + 'static
    where
        F: for<'p> Fn(&'p Parts) -> Option<&'p str> + Send + Sync + 'static,
    {
        move |parts: &Parts| self.policy(tier(parts)).clone()
    }
}
