//! Policies by the name of a tier.

use std::collections::HashMap;

use http::request::Parts;

use crate::policy::Policy;

/// Policies by the name of a tier, and the one that all other requests fall to.
///
/// ```
/// use tollgate::{Policy, Quota, Rule, Tiers, by};
///
/// let tiers = Tiers::or_else(Policy::new("free", Quota::per_minute(10))?)
///     .tier("basic", Policy::new("basic", Quota::per_minute(100))?)
///     .tier("premium", Policy::new("premium", Quota::per_minute(1_000))?);
///
/// // What an authentication layer has found out; a header, if a proxy of yours sets it.
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
    /// No tiers yet: every request, of an unknown tier or of none, falls to this policy.
    #[must_use]
    pub fn or_else(otherwise: Policy) -> Self {
        Self { tiers: HashMap::new(), otherwise }
    }

    /// Adds a tier, or replaces the one of this name.
    #[must_use]
    pub fn tier(mut self, name: &str, policy: Policy) -> Self {
        self.tiers.insert(name.into(), policy);
        self
    }

    /// The policy of a tier, or of none.
    #[must_use]
    pub fn policy(&self, tier: Option<&str>) -> &Policy {
        tier.and_then(|tier| self.tiers.get(tier)).unwrap_or(&self.otherwise)
    }

    /// The closure that [`Rule::tiered`](crate::Rule::tiered) takes: `tier` names the tier of a
    /// request, from a header or from what an earlier layer has left in the extensions.
    pub fn chosen_by<F>(self, tier: F) -> impl Fn(&Parts) -> Policy + Send + Sync + 'static
    where
        F: for<'p> Fn(&'p Parts) -> Option<&'p str> + Send + Sync + 'static,
    {
        move |parts: &Parts| self.policy(tier(parts)).clone()
    }
}
