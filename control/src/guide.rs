//! The guide.

// The definitions of links come first, because the first definition of a label applies. The pages have other
// definitions, for git hosts.

#[doc = include_str!("../docs/links.md")]
#[doc = include_str!("../docs/config.md")]
pub mod config {}

#[cfg(feature = "admin")]
#[doc = include_str!("../docs/links.md")]
#[doc = include_str!("../docs/admin.md")]
pub mod admin {}

#[cfg(feature = "admin")]
#[doc = include_str!("../docs/links.md")]
#[doc = include_str!("../docs/runbook.md")]
pub mod runbook {}

#[cfg(feature = "cli")]
#[doc = include_str!("../docs/links.md")]
#[doc = include_str!("../docs/command-line.md")]
pub mod command_line {}

#[cfg(feature = "cli")]
#[doc = include_str!("../docs/links.md")]
#[doc = include_str!("../docs/replay.md")]
pub mod replay {}
