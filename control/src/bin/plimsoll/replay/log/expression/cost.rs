use std::{fmt, str::FromStr};

use super::ExpressionError;
use crate::replay::log::Entry;

/// The cost of a request: a number, `bytes`, or `field:NAME`.
#[derive(Debug, Clone)]
pub(crate) struct CostExpression {}

impl CostExpression {
    /// Returns the cost in units, or `None` if the request has no such field, or no whole number in it.
    pub(crate) fn cost(&self, _entry: &Entry) -> Option<u64> {
        todo!()
    }
}

impl FromStr for CostExpression {
    type Err = ExpressionError;

    fn from_str(_text: &str) -> Result<Self, Self::Err> {
        todo!()
    }
}

impl fmt::Display for CostExpression {
    fn fmt(&self, _f: &mut fmt::Formatter<'_>) -> fmt::Result {
        todo!()
    }
}
