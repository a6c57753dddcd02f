//! Why a call was not made, or how it failed.

use std::{error::Error as StdError, fmt, time::Duration};

use crate::error::Error;

/// Why a call was not made, or how it failed.
#[derive(Debug)]
#[non_exhaustive]
pub enum PaceError<E> {
    /// The quota does not allow the call in time; it was not made.
    #[non_exhaustive]
    Denied {
        /// The name of the policy with the longest wait.
        policy: String,
        /// When the call is allowed if nobody else spends; `None` if its cost exceeds the capacity.
        retry_after: Option<Duration>,
    },
    /// The limiter could not decide, or its queue is full; the call was not made.
    Limiter(Error),
    /// The client's own error.
    Inner(E),
}

impl<E> PaceError<E> {
    /// Whether the quota does not allow the call in time.
    #[must_use]
    pub fn is_denied(&self) -> bool {
        matches!(self, Self::Denied { .. })
    }

    /// When the call is allowed if nobody else spends.
    #[must_use]
    pub fn retry_after(&self) -> Option<Duration> {
        match self {
            Self::Denied { retry_after, .. } => *retry_after,
            _ => None,
        }
    }
}

impl<E: fmt::Display> fmt::Display for PaceError<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Denied { policy, retry_after: Some(wait) } => {
                write!(f, "the quota {policy:?} allows this call in {wait:?}")
            }
            Self::Denied { policy, retry_after: None } => {
                write!(f, "the call costs more than the quota {policy:?} can ever hold")
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
