//! Decisions over the embedded store: bounds, keys, quotas, waits, and the contract of every store.

mod bounds;
mod check_now;
mod concurrency;
mod contract;
mod decisions;
mod key_quotas;
mod keys;
mod memory_store;
mod properties;
mod settings;
mod until_ready;
