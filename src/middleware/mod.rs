//! The tower middleware.
//!
//! [`RateLimitLayer`] makes [`RateLimit`] services. A request passes through these files in order:
//!
//! 1. `service`: splits the request into head and body, and calls the inner service if it is
//!    admitted;
//! 2. `decide`: asks the limiter, and admits or rejects the request; `misuse` looks at the first
//!    requests;
//! 3. `future`: waits for a remote store, for the inner service, and for refunds;
//! 4. `headers`, or `respond` for a denial: writes the response.

mod decide;
mod decided;
mod future;
mod headers;
mod layer;
mod misuse;
mod respond;
mod service;

pub use self::{
    decided::Decisions,
    future::ResponseFuture,
    headers::{Headers, ResetFormat},
    layer::RateLimitLayer,
    respond::{DenialResponse, Rejection, RejectionKind},
    service::RateLimit,
};
