#![doc = include_str!("../README.md")]
#![cfg_attr(docsrs, feature(doc_cfg))]

mod algorithm;
pub mod by;
mod charge;
pub mod client;
mod clock;
pub mod cost;
mod decision;
mod error;
#[doc = include_str!("../docs/guide.md")]
pub mod guide {}
#[doc = include_str!("../docs/resilience.md")]
pub mod resilience {}
mod key;
mod limiter;
mod middleware;
mod policy;
mod quota;
mod random;
mod receipt;
pub mod route;
mod rule;
mod standing;
pub mod store;
mod tally;
mod telemetry;
mod tiers;

pub use algorithm::{Algorithm, Mark};
pub use charge::{Charge, Charges, OnFailure};
pub use clock::{Clock, ManualClock, SystemClock, Timestamp};
pub use decision::{Allowed, Decision, Denied, Outcome, Outcomes};
pub use error::{Error, ErrorKind};
pub use key::{Identity, Key};
pub use limiter::{Check, Limiter, Reservation, Reserve};
#[cfg(feature = "axum")]
pub use middleware::NotDecided;
pub use middleware::{
    Decided, Headers, RateLimit, RateLimitLayer, Reset, ResponseBody, ResponseFuture,
};
pub use policy::Policy;
pub use quota::Quota;
pub use receipt::{Receipt, Spent};
pub use rule::Rule;
pub use standing::Standing;
pub use tally::Tally;
pub use tiers::Tiers;
