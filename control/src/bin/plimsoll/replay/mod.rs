//! Judges the requests of access logs by limits.

#[allow(dead_code, unused_imports, reason = "the command is built on this")]
pub(crate) mod log;
