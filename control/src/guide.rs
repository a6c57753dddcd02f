//! The guide.

#[doc = include_str!("../docs/config.md")]
pub mod config {}

#[cfg(feature = "admin")]
#[doc = include_str!("../docs/admin.md")]
pub mod admin {}

#[cfg(feature = "admin")]
#[doc = include_str!("../docs/runbook.md")]
pub mod runbook {}
