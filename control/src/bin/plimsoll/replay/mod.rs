//! Judges the requests of access logs by limits: which would have been denied, under each algorithm?

mod args;
mod command;
mod comparison;
mod input;
#[allow(dead_code, unused_imports, reason = "`explain` uses other parts")]
pub(crate) mod log;
mod peaks;
mod redis;
mod report;
mod requests;
mod retries;
mod rules;
mod search;
mod simulation;
mod tally;

pub(crate) use self::{args::ReplayArgs, command::run};
