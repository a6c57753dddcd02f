//! The contract of every store: one function for each promise. [`store_contract!`](crate::store_contract) makes
//! them tests of a store.

pub mod blocks;
pub mod changes;
pub mod checks;
pub mod concurrent;
pub mod delays;
pub mod key_quotas;
pub mod leases;
pub mod own_quotas;
pub mod refunds;
pub mod shared;
mod suite;
pub mod trials;
pub mod vectors;
pub mod waits;
