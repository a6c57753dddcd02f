//! The errors of overrides.

use std::fmt;

use crate::KeyTypeError;

/// The maximum number of overrides.
pub(super) const MAX_OVERRIDES: usize = 10_000;

/// The error of a [change](crate::Overrides::set) that was not made.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub enum OverrideError {
    /// The [registry](crate::Registry) has no policy of this name.
    UnknownPolicy {
        /// The name.
        policy: String,
        /// The names that the registry has.
        known: Vec<String>,
    },
    /// The text is not a key of the policy.
    Key(KeyTypeError),
    /// The [place of the overrides](crate::OverridesConfig) cannot be one: the message names what is allowed.
    Config(String),
    /// A value is not allowed.
    Invalid {
        /// The name of the value.
        field: &'static str,
        /// The value.
        value: String,
        /// The allowed values.
        allowed: String,
    },
    /// The override has another [version](crate::Override::version) than the request names.
    Conflict {
        /// The version that the request names.
        expected: u64,
        /// The version of the override, or 0 if there is none.
        found: u64,
    },
    /// There is no such override.
    NotFound,
    /// There are [`MAX`](crate::Overrides::MAX) other overrides.
    TooMany,
    /// Redis did not answer. If `may_apply`, the change may have been made.
    Unavailable {
        /// The error of Redis, without addresses.
        message: String,
        /// True if the change may have been made although there was no answer.
        may_apply: bool,
    },
}

impl OverrideError {
    pub(super) fn invalid(
        field: &'static str,
        value: impl Into<String>,
        allowed: impl Into<String>,
    ) -> Self {
        Self::Invalid { field, value: value.into(), allowed: allowed.into() }
    }

    /// Returns the error of a change that was not sent to Redis.
    pub(super) fn not_sent(message: &str) -> Self {
        Self::Unavailable { message: message.into(), may_apply: false }
    }
}

impl fmt::Display for OverrideError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::UnknownPolicy { policy, known } => {
                write!(f, "there is no policy {policy:?}, there are: {}", known.join(", "))
            }
            Self::Key(error) => error.fmt(f),
            Self::Config(message) => f.write_str(message),
            Self::Invalid { field, value, allowed } => {
                write!(f, "{field} is {value}, allowed is {allowed}")
            }
            Self::Conflict { expected, found: 0 } => {
                write!(f, "the override of version {expected} has ended or was removed")
            }
            Self::Conflict { expected: 0, found } => {
                write!(f, "there is an override already, of version {found}")
            }
            Self::Conflict { expected, found } => {
                write!(f, "the override has version {found}, and not {expected}")
            }
            Self::NotFound => f.write_str("there is no such override"),
            Self::TooMany => write!(f, "there are {} overrides already", MAX_OVERRIDES),
            Self::Unavailable { message, may_apply: false } => {
                write!(f, "Redis does not answer, nothing was changed: {message}")
            }
            Self::Unavailable { message, may_apply: true } => {
                write!(f, "Redis did not answer, the change may have been made: {message}")
            }
        }
    }
}

impl std::error::Error for OverrideError {}
