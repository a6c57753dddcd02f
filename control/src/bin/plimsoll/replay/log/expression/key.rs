use std::{fmt, str::FromStr};

use plimsoll::Key;

use super::ExpressionError;
use crate::replay::log::Entry;

/// The key of a request: `ip`, `ip/24`, `header:x-api-key`, `field:user`, `method`, `host`, `path`, or up to four of
/// these with `+` between them: `ip+path`.
#[derive(Debug, Clone)]
pub(crate) struct KeyExpression {}

impl KeyExpression {
    /// Returns the key that a rule of a service charges for this request, or `None` if the request lacks a part of it.
    pub(crate) fn key(&self, _entry: &Entry) -> Option<Key> {
        todo!()
    }
}

impl FromStr for KeyExpression {
    type Err = ExpressionError;

    fn from_str(_text: &str) -> Result<Self, Self::Err> {
        todo!()
    }
}

impl fmt::Display for KeyExpression {
    fn fmt(&self, _f: &mut fmt::Formatter<'_>) -> fmt::Result {
        todo!()
    }
}
