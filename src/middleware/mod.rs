//! The tower middleware.
//!
//! [`RateLimitLayer`] makes [`RateLimit`] services. A request passes through these files in order:
//!
//! 1. `service`: splits the request into head and body, calls the inner service if it is admitted, and waits for
//!    a remote store, for the inner service, and for refunds;
//! 2. `decide`: asks the limiter, and admits or rejects the request;
//! 3. `response`, or `respond` for a denial: change or write the response, with the headers of `headers`.

mod decide;
mod headers;
mod layer;
mod respond;
mod response;
mod service;

pub use self::{
    headers::{Headers, ResetFormat},
    layer::RateLimitLayer,
    respond::{DenialResponse, Rejection, RejectionKind},
    response::Decisions,
    service::{RateLimit, ResponseFuture},
};
