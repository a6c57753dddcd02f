//! The guide.

#[doc = include_str!("../docs/config.md")]
pub mod config {}
