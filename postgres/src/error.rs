//! The errors of the database, as errors of a store.

use plimsoll::{
    Error,
    error::{Effect, ErrorKind},
};
use tokio_postgres::error::SqlState;

/// The failure of a batch. Each of its requests gets it as an error.
#[derive(Debug, Clone)]
pub(crate) struct Failure {
    kind: ErrorKind,
    message: String,
    effect: Effect,
    /// The server has answered that it did nothing, and lives.
    is_rejected: bool,
}

impl Failure {
    pub(crate) fn new(message: impl Into<String>) -> Self {
        let message = message.into();
        Self { kind: ErrorKind::Unavailable, message, effect: Effect::None, is_rejected: false }
    }

    /// Returns the failure of a batch that may have been committed, unless the server has rejected it.
    pub(crate) fn of_commit(self) -> Self {
        Self { effect: if self.is_rejected { Effect::None } else { Effect::Unknown }, ..self }
    }

    pub(crate) fn to_error(&self) -> Error {
        Error::new(self.kind, self.message.clone()).with_effect(self.effect)
    }
}

impl From<tokio_postgres::Error> for Failure {
    fn from(error: tokio_postgres::Error) -> Self {
        let Some(answer) = error.as_db_error() else {
            // Its sources may name an address.
            return Self::new(format!("PostgreSQL: {error}"));
        };
        let kind = match answer.code() {
            &SqlState::INSUFFICIENT_PRIVILEGE => ErrorKind::Unauthorized,
            code if code.code().starts_with("28") => ErrorKind::Unauthorized,
            &SqlState::READ_ONLY_SQL_TRANSACTION => ErrorKind::ReadOnly,
            &SqlState::UNDEFINED_TABLE | &SqlState::UNDEFINED_COLUMN => ErrorKind::Unsupported,
            _ => ErrorKind::Unavailable,
        };
        let code = answer.code().code();
        let message = format!("PostgreSQL: {} ({code})", answer.message());
        // A server that ends may have committed before.
        Self { kind, is_rejected: !code.starts_with("57P"), ..Self::new(message) }
    }
}
