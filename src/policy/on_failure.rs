//! The reaction of a charge to a store that cannot answer, or to a failed lookup.

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
#[non_exhaustive]
#[cfg_attr(
    feature = "serde",
    derive(serde::Serialize, serde::Deserialize),
    serde(rename_all = "kebab-case")
)]
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
