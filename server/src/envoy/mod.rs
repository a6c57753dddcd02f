//! [Envoy's rate limit service](Envoy), with the [configuration files](EnvoyConfig) of envoyproxy/ratelimit.
//!
//! A request has descriptors. `request` finds the limit of each of them in the configuration, `decide` charges
//! the limits, and `response` reports the outcome of each.
//!
#![doc = include_str!("../../docs/moving-from-envoy-ratelimit.md")]

mod config;
mod debug;
mod decide;
mod dynamic_metadata;
#[expect(clippy::module_inception, reason = "it has the type `Envoy`")]
mod envoy;
mod headers;
mod json;
mod options;
mod outcome;
mod reload;
mod request;
mod response;
mod service;
mod stats;
mod unit;

pub use self::{
    config::{EnvoyConfig, EnvoyConfigError},
    envoy::Envoy,
    options::{Decide, EnvoyOptions},
};
