// The definitions of links come first, because the first definition of a label applies. The README has
// other definitions, for git hosts.
#![doc = include_str!("../docs/links.md")]
#![doc = include_str!("../docs/pictures/links.md")]
// The programs of the README need these features.
#![cfg_attr(
    any(not(doctest), all(feature = "axum", feature = "redis")),
    doc = include_str!("../README.md")
)]
#![cfg_attr(docsrs, feature(doc_cfg))]
// Some pages link to items of optional features, which exist only if those are enabled.
#![cfg_attr(not(all(feature = "axum", feature = "bb8")), allow(rustdoc::broken_intra_doc_links))]

mod algorithm;
#[cfg(test)]
#[path = "../testing/src/algorithms.rs"]
#[allow(dead_code, unreachable_pub, reason = "tests of other packages use it too")]
mod algorithms;
pub mod client;
mod clock;
mod decision;
mod error;
#[doc = include_str!("../docs/links.md")]
#[doc = include_str!("../docs/guarantees.md")]
pub mod guarantees {}
pub mod guide;
#[doc = include_str!("../docs/links.md")]
#[doc = include_str!("../docs/live_limits.md")]
pub mod live_limits {}
#[doc = include_str!("../docs/links.md")]
#[doc = include_str!("../docs/migrating.md")]
pub mod migrating {}
#[doc = include_str!("../docs/links.md")]
#[doc = include_str!("../docs/operations.md")]
pub mod operations {}
#[doc = include_str!("../docs/links.md")]
#[doc = include_str!("../docs/pictures/links.md")]
#[doc = include_str!("../docs/report.md")]
pub mod report {}
#[doc = include_str!("../docs/links.md")]
#[doc = include_str!("../docs/resilience.md")]
pub mod resilience {
    #[doc = include_str!("../docs/links.md")]
    #[doc = include_str!("../docs/faults.md")]
    pub mod faults {}
}
mod key;
mod limiter;
mod memory;
mod middleware;
mod outcome;
mod policy;
mod quota;
mod random;
#[cfg(feature = "redis")]
mod redis;
mod remote;
mod rule;
mod runtime;
#[cfg(test)]
#[path = "../testing/src/seed.rs"] // the package includes this file and `algorithms.rs` of the folder
#[allow(dead_code, unreachable_pub, reason = "tests of other packages use it too")]
mod seed;
pub mod store;
mod sync;
mod telemetry;

#[cfg(feature = "axum")]
pub use self::middleware::NotDecided;
#[cfg(feature = "redis")]
pub use self::redis::{RedisConfig, RedisStore};
pub use self::{
    clock::{Clock, ManualClock, SystemClock, Timestamp, TokioClock},
    decision::{
        Allowed, Decision, Denied, Mark, Outcome, OutcomeKind, Outcomes, OutcomesIter, Receipt,
        ReceiptLine, Standing,
    },
    error::{Effect, Error, ErrorKind},
    key::{Identity, IntoIdentity, Key, RevealedKey},
    limiter::{Check, Limiter, Reservation, Reserve},
    memory::{MemoryConfig, MemoryStore},
    middleware::{
        Decided, DenialResponse, Headers, RateLimit, RateLimitLayer, Rejection, RejectionKind,
        Reset, ResponseFuture,
    },
    outcome::{ResponseBody, Tally},
    policy::{Charge, Charges, KeyQuota, OnFailure, Policy, TrialCounts},
    quota::{Algorithm, Quota},
    remote::{BreakerConfig, Protected, Resilience},
    rule::{Rule, Tiers, by, cost, route},
    telemetry::DenialEvents,
};
