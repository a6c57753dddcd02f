//! Reads access logs: files of several formats as one stream of requests in the order of time.

mod entry;
mod error;
mod expression;
mod format;
mod logs;
mod options;
mod report;

pub(crate) use self::{
    entry::Entry,
    error::LogError,
    expression::{CostExpression, ExpressionError, Filter, KeyExpression},
    format::Format,
    logs::Logs,
    options::{ReadOptions, Shift, TimeZone},
    report::{Disorder, Skipped, SkippedLine},
};
