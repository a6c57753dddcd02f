//! Limits that several regions share: guaranteed shares, and a pool on a home store.

mod checks;
mod failures;
mod leases;
mod real;
mod requests;
mod union;
mod world;
mod wrapped;
