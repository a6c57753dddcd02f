//! Configurations in the format of envoyproxy/ratelimit: `files` are read into the fields of `spec`, and
//! `build` makes a `tree` of them, in which each descriptor of a request finds its `rule`.

mod build;
#[expect(clippy::module_inception, reason = "it has the type `EnvoyConfig`")]
mod config;
mod error;
mod files;
mod pattern;
mod rule;
mod spec;
mod tree;

pub use self::{config::EnvoyConfig, error::EnvoyConfigError};
pub(super) use self::{
    files::Files,
    rule::{DeniedHits, Limit, Rule},
    tree::budget_key,
};
