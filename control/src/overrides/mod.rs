//! Changes of limits that an operator makes while a service runs: with who made them, why, and until when.

mod apply;
mod audit;
mod change;
mod config;
mod entry;
mod error;
mod known;
#[allow(clippy::module_inception, reason = "the type has the name of its module")]
mod overrides;
mod redis;
mod report;
mod state;
mod tasks;
mod tls;

pub(crate) use self::entry::{digest, redacted};
pub use self::{
    audit::{AuditAction, AuditEntry, NewAuditEntry},
    change::{Change, InForce},
    config::OverridesConfig,
    entry::{NewOverride, Override, OverrideKind},
    error::OverrideError,
    overrides::{Overrides, OverridesStatus},
};
