//! The error of a paced call.

use std::{error::Error as StdError, fmt, time::Duration};

use plimsoll::Error;

/// The error of a call through a [`PaceLayer`](crate::PaceLayer): the layer did not make the call, or
/// the client failed.
#[derive(Debug)]
#[non_exhaustive]
pub enum PaceError<E> {
    /// The [`Quota`](plimsoll::Quota) or the upstream service does not allow the call in time. The call
    /// was not made, and nothing was charged.
    #[non_exhaustive]
    Denied {
        /// The name of the [`Policy`](plimsoll::Policy) with the longest wait. If `by_upstream` is true, it
        /// is the policy of the first charge of the call that is not a
        /// [shadow](plimsoll::Charge::shadow).
        policy: String,
        /// The wait after which the call is allowed if no other call spends units. It is `None` if
        /// `over_capacity` is true, or if the store named no wait. See
        /// [`Denied::retry_after`](plimsoll::decision::Denied::retry_after).
        retry_after: Option<Duration>,
        /// True if the cost of the call exceeds the capacity of the policy, so that waiting does
        /// not help. See [`Denied::is_over_capacity`](plimsoll::decision::Denied::is_over_capacity).
        over_capacity: bool,
        /// True if the upstream service has asked for a pause in a
        /// [response](crate::PaceLayer#responses-of-the-upstream-service) to an earlier call.
        by_upstream: bool,
    },
    /// The [`Limiter`](plimsoll::Limiter) could not decide, or too many calls wait already. The call
    /// was not made.
    Limiter(Error),
    /// The client failed with this error.
    Inner(E),
}

impl<E> PaceError<E> {
    /// Returns whether the error is [`Denied`](Self::Denied).
    #[must_use]
    pub fn is_denied(&self) -> bool {
        matches!(self, Self::Denied { .. })
    }

    /// Returns whether the error is [`Denied`](Self::Denied) because the cost exceeds the capacity
    /// of a policy, so that the call can never be allowed.
    #[must_use]
    pub fn is_over_capacity(&self) -> bool {
        matches!(self, Self::Denied { over_capacity: true, .. })
    }

    /// Returns whether the error is [`Denied`](Self::Denied) because the upstream service has asked for
    /// a pause.
    #[must_use]
    pub fn is_by_upstream(&self) -> bool {
        matches!(self, Self::Denied { by_upstream: true, .. })
    }

    /// Returns the wait of a [`Denied`](Self::Denied) call, after which it is allowed if no other
    /// call spends units.
    #[must_use]
    pub fn retry_after(&self) -> Option<Duration> {
        match self {
            Self::Denied { retry_after, .. } => *retry_after,
            _ => None,
        }
    }
}

impl<E> From<Error> for PaceError<E> {
    fn from(error: Error) -> Self {
        Self::Limiter(error)
    }
}

impl<E: fmt::Display> fmt::Display for PaceError<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Denied { policy, over_capacity: true, .. } => {
                write!(f, "the call costs more than the quota {policy:?} can ever hold")
            }
            Self::Denied { by_upstream: true, retry_after: Some(wait), .. } => {
                write!(f, "the upstream service allows calls again in {wait:?}")
            }
            Self::Denied { policy, retry_after: Some(wait), .. } => {
                write!(f, "the quota {policy:?} allows this call in {wait:?}")
            }
            Self::Denied { policy, retry_after: None, .. } => {
                write!(f, "the quota {policy:?} does not allow this call at the moment")
            }
            Self::Limiter(error) => write!(f, "the limiter could not decide: {error}"),
            Self::Inner(error) => error.fmt(f),
        }
    }
}

impl<E: StdError + 'static> StdError for PaceError<E> {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        match self {
            Self::Denied { .. } => None,
            Self::Limiter(error) => Some(error),
            Self::Inner(error) => error.source(),
        }
    }
}
