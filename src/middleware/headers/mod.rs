//! Rate limit headers: `RateLimit-Policy` and `RateLimit` as in version 11 of the IETF draft,
//! `X-RateLimit-*`, and `Retry-After`.

mod draft11;
#[expect(clippy::module_inception, reason = "the file of the type that the folder is named after")]
mod headers;
mod policy_cache;
mod value;

pub use self::headers::{Headers, ResetFormat};
pub(super) use self::{
    headers::ResponseHeaders,
    value::{is_estimate, number, retry_after, with_jitter},
};
