#![doc = include_str!("../README.md")]
#![cfg_attr(docsrs, feature(doc_cfg))]

mod algorithm;
pub mod by;
mod charge;
mod clock;
mod decision;
mod error;
mod few;
mod key;
mod limiter;
mod middleware;
mod policy;
mod quota;
mod rule;
mod standing;
pub mod store;

pub use algorithm::{Algorithm, Mark};
pub use charge::{Charge, OnFailure};
pub use clock::{Clock, ManualClock, SystemClock, Timestamp};
pub use decision::{Allowed, Decision, Denied, Outcome, Receipt, Spent};
pub use error::{Error, ErrorKind};
pub use key::{Identity, Key};
pub use limiter::{Limiter, Reservation, Reserve};
pub use middleware::{Headers, RateLimit, RateLimitLayer, Reset, ResponseBody, ResponseFuture};
pub use policy::Policy;
pub use quota::Quota;
pub use rule::Rule;
pub use standing::Standing;
