//! Limits that operators see and change while a service runs.
//!
//! The rules of a service come from a configuration file, which is read again when it changes. Overrides
//! change a limit on all instances at once, for a time. The admin page and the command line show which
//! keys are limited, and change limits with a reason that is kept in an audit log.

#[cfg(feature = "admin")]
pub mod admin;
mod config;
/// Texts of configurations, read into types of the program with the places of their values, for programs whose
/// own files report errors as [`Config`] does.
pub mod document {
    pub use crate::config::document::{At, Mistake, nearest, read};
}
mod fleet;
pub mod guide;
mod key_type;
mod offenders;
mod overrides;
mod registry;
mod time;
#[cfg(feature = "admin")]
pub mod web;
mod written;

pub use self::{
    config::{
        Claims, Config, ConfigError, ConfigLayer, ConfigService, ConfigStatus, ExplainedRule,
        Explanation, Format, StoreConfig, StoreKind, Watch,
    },
    fleet::{Fleet, HitMark, HitRate, HitRates, Hits, Instance, PolicyUnits, Units},
    key_type::{KeyType, KeyTypeError},
    offenders::{Offender, OffenderOrder, Offenders},
    overrides::{
        AuditAction, AuditEntry, Change, Override, OverrideError, OverrideKind, Overrides,
        OverridesConfig, OverridesStatus,
    },
    registry::{Origin, Registered, Registry, RegistryError},
};

/// The examples of the page of the repository, which are tests.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
mod readme {}
