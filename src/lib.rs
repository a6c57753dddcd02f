#![doc = include_str!("../docs/links.md")]
#![doc = include_str!("../docs/pictures/links.md")]
// The programs of the README need these features. The links come first, because the first definition of a label
// applies, and the README has other definitions, for git hosts.
#![cfg_attr(
    any(not(doctest), all(feature = "axum", feature = "redis")),
    doc = include_str!("../README.md")
)]
#![cfg_attr(docsrs, feature(doc_cfg))]
// Some pages link to items of optional features, which exist only if those are enabled.
#![cfg_attr(not(all(feature = "axum", feature = "bb8")), allow(rustdoc::broken_intra_doc_links))]

#[cfg(feature = "redis")]
pub use self::redis::RedisStore;
pub use self::{
    decision::Decision,
    error::Error,
    key::Key,
    limiter::Limiter,
    memory::MemoryStore,
    middleware::RateLimitLayer,
    policy::{Charge, OnFailure, Policy},
    quota::{Algorithm, Quota},
    remote::Resilience,
    rule::{Rule, by, cost, route},
};

pub mod clock;
pub mod decision;
pub mod error;
pub mod guide;
pub mod key;
pub mod limiter;
pub mod memory;
pub mod policy;
#[cfg(feature = "redis")]
pub mod redis;
pub mod rule;
pub mod store;

/// The layer that limits the requests of a service, its responses, and their headers.
pub mod layer {
    pub use crate::{
        middleware::{
            Decisions, DenialResponse, Headers, RateLimit, RateLimitLayer, Rejection,
            RejectionKind, ResetFormat, ResponseFuture,
        },
        outcome::{AdmittedRequest, ResponseBody, Tally},
    };
}

/// The handling of a store that is slow, gone or wrong.
///
/// [The page on resilience](crate::guide::resilience) describes it.
pub mod resilience {
    pub use crate::remote::{BreakerConfig, Protected, Resilience};
}

mod algorithm;
mod base64;
mod middleware;
mod outcome;
mod quota;
mod random;
mod remote;
mod runtime;
mod sync;
mod telemetry;

#[cfg(test)]
#[path = "../testing/src/algorithms.rs"]
#[allow(dead_code, unreachable_pub, reason = "tests of other packages use it too")]
mod algorithms;
#[cfg(test)]
#[path = "../testing/src/seed.rs"] // the package includes this file and `algorithms.rs` of the folder
#[allow(dead_code, unreachable_pub, reason = "tests of other packages use it too")]
mod seed;
