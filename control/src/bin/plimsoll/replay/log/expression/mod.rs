//! Expressions over a request: its key, its cost, and filters.

mod cost;
mod error;
mod filter;
mod key;

pub(crate) use self::{
    cost::CostExpression, error::ExpressionError, filter::Filter, key::KeyExpression,
};
