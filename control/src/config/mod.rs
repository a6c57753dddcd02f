//! Limits from a file, which is read again when it changes.

mod claims;
#[expect(clippy::module_inception, reason = "it has the type `Config`")]
mod config;
mod current;
pub(crate) mod document;
mod error;
mod explain;
mod file;
mod follower;
mod format;
mod keys;
mod layer;
mod plan;
mod rules;
mod spec;
mod status;
mod store;
mod watch;

pub use self::{
    claims::Claims,
    config::Config,
    error::ConfigError,
    explain::{ExplainedRule, Explanation},
    format::Format,
    layer::{ConfigLayer, ConfigService},
    status::ConfigStatus,
    store::{StoreConfig, StoreKind},
    watch::Watch,
};
