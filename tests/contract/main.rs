//! The contract of every store, and one line for each store that is held to it.

#[path = "../support/mod.rs"]
mod support;

#[macro_use]
mod suite;
mod blocks;
mod changes;
mod checks;
mod embedded;
mod leases;
mod own_quotas;
mod refunds;
mod vectors;
mod waits;

store_contract!(in_memory, crate::support::memory);

mod in_memory_alone {
    crate::suite::promises! { crate::support::memory; embedded: a_lease_changes_nothing; }
}
