//! Expressions over a request: its key, its cost, and filters.

mod filter;
mod key;
mod pattern;
mod value;

pub(crate) use self::{
    filter::Filter,
    key::{CostExpression, KeyExpression},
    value::ExpressionError,
};
