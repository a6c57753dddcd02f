//! Envoy's rate limit service, with the configuration files of envoyproxy/ratelimit.
//!
//! A request has descriptors. `request` finds the limit of each of them in the configuration, `decide` charges
//! the limits, and `response` says what became of each. The page about [`moving`] from envoyproxy/ratelimit has the
//! differences.

mod config;
mod debug;
mod decide;
mod dynamic_metadata;
#[expect(clippy::module_inception, reason = "it has the type `Envoy`")]
mod envoy;
mod headers;
mod json;
mod lint;
mod metric_key;
mod options;
mod outcome;
mod reload;
mod request;
mod response;
mod service;
mod stats;
mod structs;
mod unit;

#[doc = include_str!("../../docs/moving-from-envoy-ratelimit.md")]
pub mod moving {}

pub use self::{
    config::{EnvoyConfig, EnvoyConfigError},
    envoy::Envoy,
    lint::{Finding, lint},
    options::{Decide, EnvoyOptions, LimitHeaders, ResponseHeaders},
};

/// The largest file of a configuration, in bytes.
pub(crate) const MAX_FILE_BYTES: u64 = config::MAX_BYTES;
