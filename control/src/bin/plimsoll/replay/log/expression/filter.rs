use std::{fmt, str::FromStr};

use super::ExpressionError;
use crate::replay::log::Entry;

/// The requests that count: terms that must all hold, such as `path=/api/* status<500 method!=OPTIONS`.
#[derive(Debug, Clone, Default)]
pub(crate) struct Filter {}

impl Filter {
    /// Returns whether all terms hold for this request.
    pub(crate) fn matches(&self, _entry: &Entry) -> bool {
        todo!()
    }
}

impl FromStr for Filter {
    type Err = ExpressionError;

    fn from_str(_text: &str) -> Result<Self, Self::Err> {
        todo!()
    }
}

impl fmt::Display for Filter {
    fn fmt(&self, _f: &mut fmt::Formatter<'_>) -> fmt::Result {
        todo!()
    }
}
