//! The treatment of requests when the store cannot answer.

use crate::error::Error;

/// The treatment of a request when the store cannot answer.
///
/// Set it with [`Charge::with_on_failure`](crate::Charge::with_on_failure) or
/// [`Rule::on_failure`](crate::Rule::on_failure). [`Limiter::until_ready`](crate::Limiter::until_ready) waits
/// for the store instead, unless the charge says `Local` or `Allow`.
///
/// The greater of two reactions is the stricter one: `Allow` is the least, and `Deny` the greatest.
///
/// ```
/// use plimsoll::{OnFailure, Policy, Quota, Rule, by};
///
/// // A login must not be guessed while Redis is down.
/// let login = Rule::new(Policy::new("login", Quota::per_minute(5))?, by::peer_ip())
///     .on_failure(OnFailure::Deny);
/// // A health page must always answer.
/// let health = Rule::new(Policy::new("health", Quota::per_second(10))?, by::peer_ip())
///     .on_failure(OnFailure::Allow);
/// # Ok::<(), plimsoll::Error>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, PartialOrd, Ord)]
#[cfg_attr(
    feature = "serde",
    derive(serde::Serialize, serde::Deserialize),
    serde(rename_all = "kebab-case")
)]
#[non_exhaustive]
pub enum OnFailure {
    /// The request is admitted without a limit.
    Allow,
    /// This process decides by itself, under its [share](crate::guide::resilience#how-much-is-admitted-at-most) of the
    /// limit. If the limiter has no fallback, a layer admits the request, and
    /// [`Limiter::check`](crate::Limiter::check) returns an error.
    #[default]
    Local,
    /// A layer rejects the request with status 503 and the problem type
    /// `temporary-reduced-capacity`. [`Limiter::check`](crate::Limiter::check) returns an error.
    Deny,
}

impl OnFailure {
    /// Returns the stricter of two reactions that may not be set.
    pub(super) fn stricter_of(one: Option<Self>, other: Option<Self>) -> Option<Self> {
        match (one, other) {
            (Some(one), Some(other)) => Some(one.max(other)),
            // The default is at least as strict as `Local`.
            (None, Some(Self::Deny)) | (Some(Self::Deny), None) => Some(Self::Deny),
            (None, _) | (_, None) => None,
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
    /// Returns the treatment of a check, from the reactions of its charges that are not shadows.
    pub(super) fn of(binding: impl Iterator<Item = OnFailure>) -> Self {
        let mut binding = binding.peekable();
        let binds = binding.peek().is_some();
        Self { binds, denies: binding.any(|on_failure| on_failure == OnFailure::Deny) }
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
    use crate::{
        error::{Error, ErrorKind},
        policy::{Charges, OnFailure, Policy},
    };

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
            let failure_policy = Charges::from(charge).failure_policy();
            assert_eq!(failure_policy.admits(&invalid), admits_invalid, "{failure_policy:?}");
            assert_eq!(failure_policy.admits(&down), admits_down, "{failure_policy:?}");
        }
    }
}
