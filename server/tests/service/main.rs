//! The program as a client and an operator see it: it is started, asked and ended as in production.
//!
//! Each answer over HTTP is checked against the OpenAPI document (`support/openapi.rs`).
#![expect(clippy::disallowed_methods, reason = "the tests measure real time")]

mod admin;
mod checks;
mod envoy;
mod grpc;
mod hostile;
mod outages;
mod random;
mod ratelimit_variables;
mod receipts;
mod replicas;
mod secured;
mod settings;
mod shutdown;
mod slots;
mod slow;
mod support;
mod tokens;
