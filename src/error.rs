//! What can go wrong. A denial is not here: it is a [`Decision`](crate::Decision).

use std::{borrow::Cow, error::Error as StdError, fmt};

type Source = Box<dyn StdError + Send + Sync>;

/// Why a value was not accepted or a check could not be decided.
///
/// Ask [`kind`](Error::kind) or one of the `is_*` questions; the text is for people and names the
/// field, the value and what is allowed.
pub struct Error(Box<Report>);

struct Report {
    kind: ErrorKind,
    message: Cow<'static, str>,
    source: Option<Source>,
    effect: Effect,
}

/// What a request that failed may have done to the store.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Effect {
    /// Nothing was charged or refunded: repeating the request cannot count twice.
    None,
    /// The request, or a part of it, may have been applied.
    Unknown,
    /// The request was applied, or the part of it that could not be undone.
    Applied,
}

/// The kinds of [`Error`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ErrorKind {
    /// A value that the caller gave is outside of what is allowed.
    Invalid,
    /// The store could not answer: it is down, out of reach, or answers with errors.
    Unavailable,
    /// The store does not let this client in, or not do what it has to: a wrong user, password or
    /// set of rights. The message says what to grant.
    Unauthorized,
    /// The store only reads: a replica, or a primary that has been demoted.
    ReadOnly,
    /// The store has no memory left for what would have to be written.
    OutOfMemory,
    /// The store cannot write its data to its disk, and so changes none.
    CannotPersist,
    /// The store is still reading its data in.
    Loading,
    /// The store holds something else where a standing should be. It is left as it is.
    WrongType,
    /// The store has failed so often that it is left alone for a moment: it was not asked.
    BreakerOpen,
    /// The store gave an answer that this crate does not understand.
    Protocol,
    /// Too many tasks already wait in this process for their turn.
    QueueFull,
    /// The deadline passed before a turn came.
    Deadline,
}

impl Error {
    /// Creates an error of the given kind, for implementations of [`Store`](crate::store::Store).
    /// Its [`effect`](Self::effect) is [`Effect::None`].
    pub fn new(kind: ErrorKind, message: impl Into<Cow<'static, str>>) -> Self {
        let message = message.into();
        Self(Box::new(Report { kind, message, source: None, effect: Effect::None }))
    }

    /// Returns the same error with another [`effect`](Self::effect).
    #[must_use]
    pub fn with_effect(mut self, effect: Effect) -> Self {
        self.0.effect = effect;
        self
    }

    /// The same error, with what caused it.
    #[must_use]
    pub fn with_source(mut self, source: impl Into<Source>) -> Self {
        self.0.source = Some(source.into());
        self
    }

    pub(crate) fn invalid(field: &str, value: impl fmt::Debug, allowed: impl fmt::Display) -> Self {
        Self::new(ErrorKind::Invalid, format!("{field} is {value:?}, allowed is {allowed}"))
    }

    /// What kind of error this is.
    #[must_use]
    pub fn kind(&self) -> ErrorKind {
        self.0.kind
    }

    /// Whether the caller gave a value that is not allowed.
    #[must_use]
    pub fn is_invalid(&self) -> bool {
        self.kind() == ErrorKind::Invalid
    }

    /// Whether the store could not answer, for whatever reason: [`kind`](Self::kind) says which.
    #[must_use]
    pub fn is_unavailable(&self) -> bool {
        use ErrorKind::{Deadline, Invalid, QueueFull};
        !matches!(self.kind(), Invalid | QueueFull | Deadline)
    }

    /// Returns what the failed request may have done to the store.
    #[must_use]
    pub fn effect(&self) -> Effect {
        self.0.effect
    }

    /// Whether the deadline passed before a turn came.
    #[must_use]
    pub fn is_deadline(&self) -> bool {
        self.kind() == ErrorKind::Deadline
    }

    /// Whether too many tasks already wait for their turn.
    #[must_use]
    pub fn is_queue_full(&self) -> bool {
        self.kind() == ErrorKind::QueueFull
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0.message)
    }
}

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Error")
            .field("kind", &self.0.kind)
            .field("message", &self.0.message)
            .field("effect", &self.0.effect)
            .field("source", &self.0.source)
            .finish()
    }
}

impl StdError for Error {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        self.0.source.as_deref().map(|source| source as &(dyn StdError + 'static))
    }
}
