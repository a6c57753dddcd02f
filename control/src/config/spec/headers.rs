//! The headers of responses.

use plimsoll::layer::{Headers, ResetFormat};
use serde::Deserialize;

use super::HexSecret;

/// The headers of responses. A denial has `Retry-After` as well.
#[derive(Debug, PartialEq, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields, expecting = "a table of `draft11`, `x_ratelimit`, `partition_secret`")]
pub(in crate::config) struct HeadersSpec {
    /// Responses have `RateLimit-Policy` and `RateLimit`, unless this is false. The default is true.
    pub(in crate::config) draft11: Option<bool>,
    /// The unit of `X-RateLimit-Reset`, or `off` for no `X-RateLimit` headers. The default is `seconds`.
    pub(in crate::config) x_ratelimit: Option<ResetSpec>,
    /// 32 hexadecimal digits: the secret of the partition keys in `RateLimit`. The default is none, and
    /// no partition keys.
    pub(in crate::config) partition_secret: Option<HexSecret>,
}

/// The unit of `X-RateLimit-Reset`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case", expecting = "`seconds`, `epoch` or `off`")]
pub(in crate::config) enum ResetSpec {
    /// Seconds from now.
    Seconds,
    /// Seconds since 1970.
    Epoch,
    /// There are no such headers.
    Off,
}

impl HeadersSpec {
    pub(in crate::config) fn headers(&self) -> Headers {
        let mut headers = Headers::none();
        if self.draft11.unwrap_or(true) {
            headers = headers.draft11();
        }
        match self.x_ratelimit.unwrap_or(ResetSpec::Seconds) {
            ResetSpec::Seconds => headers = headers.x_ratelimit(ResetFormat::Seconds),
            ResetSpec::Epoch => headers = headers.x_ratelimit(ResetFormat::Epoch),
            ResetSpec::Off => {}
        }
        match &self.partition_secret {
            Some(secret) => headers.partition_secret(secret.0),
            None => headers,
        }
    }
}
