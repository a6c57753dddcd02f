//! The guide.

// The definitions of links come first, because the first definition of a label applies. The pages have other
// definitions, for git hosts.

#[doc = include_str!("../docs/links.md")]
#[doc = include_str!("../docs/config.md")]
pub mod config {}
