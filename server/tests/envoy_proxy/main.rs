//! The service behind a real Envoy, and clients that others have written.
#![allow(missing_docs, reason = "a test")]

mod clients;
mod examples;
mod failures;
mod faults;
mod limits;
mod proxy;
mod replicas;
mod scenarios;
mod service;
