//! The contract of every store of [plimsoll]: about 130 tests that a [`Store`] of your own passes too.
//!
//! Each test is a promise: a function that is given a fresh, empty store. [`suite!`] makes them tests of
//! your package. A store whose time can be set needs nothing else:
//!
//! ```
//! use plimsoll::{Limiter, MemoryStore, clock::ManualClock, memory::MemoryConfig};
//! use plimsoll_contract::Fixture;
//!
//! plimsoll_contract::suite!(crate::fixture);
//!
//! async fn fixture() -> Fixture {
//!     let clock = ManualClock::default();
//!     let store = MemoryStore::new(MemoryConfig::default().clock(clock.clone()));
//!     Fixture::new(Limiter::new(store), move |micros| clock.set(micros))
//! }
//! # fn main() {}
//! ```
//!
//! A store that several processes share, and that counts [leased quotas](plimsoll::Quota::leased), passes
//! [`shared_suite!`] as well. Give its limiter no deadline:
//! [`Limiter::with_resilience(store, Resilience::none())`](plimsoll::Limiter::with_resilience).
//!
//! A store that decides with [`Step`](plimsoll::store::Step) passes most promises by that. The other ones show
//! whether it finds and keeps the states.
//!
//! [`Store`]: plimsoll::store::Store
#![allow(missing_docs, reason = "the name of a promise says what it tests")]

pub mod blocks;
pub mod changes;
pub mod checks;
pub mod concurrent;
mod fixture;
pub mod key_quotas;
pub mod leases;
pub mod own_quotas;
pub mod refunds;
pub mod shared;
mod suite;
pub mod trials;
pub mod vectors;
pub mod waits;

pub use self::fixture::{Fixture, hold, micros, most_in_any_window, policy, run};
