//! The tower middleware.
//!
//! [`RateLimitLayer`] makes [`RateLimit`] services. A request passes through these files in order:
//!
//! 1. `service`: takes the request apart and calls the inner service or not;
//! 2. `decide`: asks the limiter, and decides whether the request is admitted;
//! 3. `future`: waits for a remote store, for the inner service, and for refunds;
//! 4. `headers`, or `respond` for a denial: writes the response.

mod decide;
mod decided;
mod future;
mod headers;
mod layer;
mod respond;
mod service;

#[cfg(feature = "axum")]
pub use self::decided::NotDecided;
pub use self::{
    decided::Decided,
    future::ResponseFuture,
    headers::{Headers, Reset},
    layer::RateLimitLayer,
    service::RateLimit,
};
