//! The limiter of [plimsoll](https://docs.rs/plimsoll) as a service, for programs in other languages.
//!
//! The program `plimsoll-server` is the usual way to run it. The library has its parts:
//!
//! - [`settings`]: flags, environment variables and the settings file, as [`Settings`](settings::Settings);
//! - [`access`]: the clients by their tokens, and the policies that each may use;
//! - [`http`]: the HTTP API as an axum [`router`](http::router());
//! - [`envoy`]: Envoy's rate limit service, with the configuration files of envoyproxy/ratelimit;
//! - [`check`](check()): the checks before the start;
//! - [`Server`]: all parts together, with listeners, health, metrics and the admin page.

pub mod access;
mod check;
pub mod envoy;
mod files;
mod folder;
mod grpc;
mod health;
pub mod http;
mod limits;
mod listen;
mod logs;
mod metrics;
mod random;
mod server;
pub mod settings;
mod signals;

pub use self::{
    check::{ServerError, check},
    limits::DEFAULT_CONFIG,
    logs::install as install_logs,
    server::Server,
};
