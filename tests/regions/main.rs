//! Limits that several regions share: guaranteed shares, and a pool on a home store.

mod checks;
mod failures;
mod requests;
#[path = "../support/mod.rs"]
mod support;
mod union;
mod world;
