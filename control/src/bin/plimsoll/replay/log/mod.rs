//! Reads access logs: files of several formats as one stream of requests in the order of time.

mod address;
mod columns;
mod detect;
mod entry;
mod error;
mod expression;
mod format;
mod input;
mod lines;
mod logs;
mod options;
mod parse;
mod report;
mod request;
mod roles;
mod source;
mod time;
mod window;
mod words;

#[cfg(test)]
mod tests;

pub(crate) use self::{
    entry::Entry,
    error::LogError,
    expression::{CostExpression, ExpressionError, Filter, KeyExpression},
    format::Format,
    logs::Logs,
    options::{ReadOptions, Shift},
    report::{Disorder, Skipped, SkippedLine},
    time::TimeZone,
};
