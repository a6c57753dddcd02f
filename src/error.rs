//! Errors. A denial is not an error: it is a [`Decision`](crate::Decision).

use std::{borrow::Cow, convert::Infallible, error::Error as StdError, fmt};

type BoxError = Box<dyn StdError + Send + Sync>;

/// The error of a value that is out of range, or of a check that could not be decided.
///
/// [`kind`](Error::kind) and the `is_*` methods tell the cases apart. The text is for people. For a
/// value out of range it names the field, the value and the allowed range.
///
/// ```
/// use plimsoll::{Policy, Quota, error::ErrorKind};
///
/// let error = Policy::new("Search", Quota::per_minute(100)).unwrap_err();
/// assert_eq!(error.kind(), ErrorKind::Invalid);
/// assert!(error.to_string().starts_with("policy name is \"Search\", allowed is"));
/// ```
pub struct Error(Box<ErrorFields>);

struct ErrorFields {
    kind: ErrorKind,
    message: Cow<'static, str>,
    source: Option<BoxError>,
    effect: Effect,
    place: Cow<'static, str>,
    /// The number of the store's node that failed, if the request depended on several.
    node: Option<u32>,
}

/// The effect that a failed request may have had on the store. [`Error::effect`] returns it.
///
/// The effect of a request in two parts is the greater one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Effect {
    /// Nothing was charged or refunded. The request can be repeated without counting twice.
    None,
    /// The request, or a part of it, may have been applied.
    Unknown,
    /// The request was applied, or a part of it that could not be undone.
    Applied,
}

/// The kind of an [`Error`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ErrorKind {
    /// A value from the caller is out of range.
    Invalid,
    /// The store could not answer: it is down, unreachable, or answers with errors.
    Unavailable,
    /// The store rejects this client: the user, the password or the permissions are wrong. The message
    /// names the permissions to grant.
    Unauthorized,
    /// The store is read-only: a replica, or a primary that has been demoted.
    ReadOnly,
    /// The store has no memory left for a write.
    OutOfMemory,
    /// The store cannot write its data to disk, and therefore rejects writes.
    CannotPersist,
    /// The store is still loading its data.
    Loading,
    /// The store holds a damaged standing, or a value of another type, which is not changed. Only checks
    /// of this key fail.
    WrongType,
    /// The circuit breaker is open, so no request was sent to the store.
    BreakerOpen,
    /// The store sent a reply that this crate does not understand.
    Protocol,
    /// The server cannot be used in this way: its version is too old, or it is one node of a cluster
    /// and was addressed as a single server.
    Unsupported,
    /// Too many tasks of this process already wait in [`Limiter::until_ready`](crate::Limiter::until_ready).
    QueueFull,
    /// In [`Limiter::until_ready`](crate::Limiter::until_ready), the maximum wait passed before the
    /// task became the first in the queue of its key.
    Deadline,
}

impl ErrorKind {
    /// Returns the name of the kind in events and metrics, such as `read_only`.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Invalid => "invalid",
            Self::Unavailable => "unavailable",
            Self::Unauthorized => "unauthorized",
            Self::ReadOnly => "read_only",
            Self::OutOfMemory => "out_of_memory",
            Self::CannotPersist => "cannot_persist",
            Self::Loading => "loading",
            Self::WrongType => "wrong_type",
            Self::BreakerOpen => "breaker_open",
            Self::Protocol => "protocol",
            Self::Unsupported => "unsupported",
            Self::QueueFull => "queue_full",
            Self::Deadline => "deadline",
        }
    }
}

impl Error {
    /// Creates an error of the given kind, for implementations of [`Store`](crate::store::Store).
    /// Its [`effect`](Self::effect) is [`Effect::None`].
    pub fn new(kind: ErrorKind, message: impl Into<Cow<'static, str>>) -> Self {
        Self(Box::new(ErrorFields {
            kind,
            message: message.into(),
            source: None,
            effect: Effect::None,
            place: Cow::Borrowed("store"),
            node: None,
        }))
    }

    /// Returns the same error with another [`effect`](Self::effect).
    #[must_use]
    pub fn with_effect(mut self, effect: Effect) -> Self {
        self.0.effect = effect;
        self
    }

    /// Returns the same error with another sentence at the end of its message.
    #[cfg(feature = "redis")]
    pub(crate) fn with_note(mut self, note: &str) -> Self {
        self.0.message = format!("{}; {note}", self.0.message).into();
        self
    }

    /// Returns the same error with a [`source`](StdError::source).
    #[must_use]
    pub fn with_source(mut self, source: impl Into<BoxError>) -> Self {
        self.0.source = Some(source.into());
        self
    }

    /// Returns the same error with another [`place`](Self::place).
    ///
    /// The place appears in logs, so it must contain neither keys nor addresses. There must be few
    /// different places.
    #[cfg(feature = "redis")]
    pub(crate) fn with_place(mut self, place: impl Into<Cow<'static, str>>) -> Self {
        self.0.place = place.into();
        self
    }

    /// Returns the same error, with the number of the store's node that failed.
    #[cfg(feature = "redis")]
    pub(crate) fn with_node(mut self, node: u32) -> Self {
        self.0.node = Some(node);
        self
    }

    /// Returns the number of the store's node that failed, if the request depended on several.
    pub(crate) fn node(&self) -> Option<u32> {
        self.0.node
    }

    pub(crate) fn invalid(field: &str, value: impl fmt::Debug, allowed: impl fmt::Display) -> Self {
        Self::new(ErrorKind::Invalid, format!("{field} is {value:?}, allowed is {allowed}"))
    }

    /// Returns the kind of the error.
    #[must_use]
    pub fn kind(&self) -> ErrorKind {
        self.0.kind
    }

    /// Returns whether the store could not answer, for any reason.
    /// [`kind`](Self::kind) returns the reason.
    #[must_use]
    pub fn is_unavailable(&self) -> bool {
        use ErrorKind::{Deadline, Invalid, QueueFull};
        !matches!(self.kind(), Invalid | QueueFull | Deadline)
    }

    /// Returns the effect that the failed request may have had on the store.
    #[must_use]
    pub fn effect(&self) -> Effect {
        self.0.effect
    }

    /// Returns the part of the store that failed, without its address: for a
    /// [`RedisStore`](crate::RedisStore) `server`, `primary` or `node 2 (slots from 5461)`, otherwise
    /// `store`.
    #[must_use]
    pub fn place(&self) -> &str {
        &self.0.place
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0.message)
    }
}

/// Writes the message, and the messages of its [sources](StdError::source), because `fn main() -> Result<(),
/// _>` prints errors in this way.
impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0.message)?;
        let mut last = self.0.message.to_string();
        let mut source = self.source();
        while let Some(error) = source {
            let message = error.to_string();
            // Many errors repeat the message of their source.
            if !last.contains(&message) {
                write!(f, ": {message}")?;
            }
            (last, source) = (message, error.source());
        }
        Ok(())
    }
}

/// A conversion that cannot fail, such as from a [`Quota`](crate::Quota) into itself.
impl From<Infallible> for Error {
    fn from(never: Infallible) -> Self {
        match never {}
    }
}

impl StdError for Error {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        self.0.source.as_deref().map(|source| source as &(dyn StdError + 'static))
    }
}
