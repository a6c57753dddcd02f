use std::{error::Error, fmt};

/// The error of a text that is no expression. It says what, where, and what is allowed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ExpressionError(pub(super) String);

impl fmt::Display for ExpressionError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl Error for ExpressionError {}
