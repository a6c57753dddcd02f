//! Changes of limits that an operator makes while a service runs: with who made them, why, and until when.

mod apply;
mod audit;
mod backend;
mod config;
mod entry;
mod error;
mod known;
#[allow(clippy::module_inception, reason = "the type has the name of its module")]
mod overrides;
mod state;

#[cfg(feature = "admin")]
pub(crate) use self::entry::{check_length, find};
pub(crate) use self::entry::{digest, redacted};
pub use self::{
    audit::{AuditAction, AuditEntry},
    config::OverridesConfig,
    entry::{Change, Override, OverrideKind},
    error::OverrideError,
    overrides::{Overrides, OverridesStatus},
};
