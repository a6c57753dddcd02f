//! The limiter of [plimsoll](https://docs.rs/plimsoll) as a service, for programs in other languages.

pub mod envoy;
