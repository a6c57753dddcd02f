//! The decisions of each algorithm, judged by an exact log.

mod judge;
mod limits;
mod run;
mod traffic;

pub(crate) use run::print;
