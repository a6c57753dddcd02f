//! The events of the crate, in a program of its own: where a thread without a subscriber is the first at an
//! event, `tracing` may store that no subscriber wants that event.

mod clocks;
mod denials;
mod first_start;
mod misuse;
mod store_failures;
