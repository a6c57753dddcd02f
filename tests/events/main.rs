//! The events of the crate, in a program of its own: in one where a thread without a subscriber comes first to
//! an event, `tracing` may take it for one that nobody reads.

mod denials;
mod first_start;
mod lookup;
mod misuse;
mod store_failures;
