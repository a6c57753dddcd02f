//! Denials in plain text.

use bytes::Bytes;
use http::{HeaderValue, Response, StatusCode};

use super::response::{response, status};
use crate::decision::Denied;

const TEXT_PLAIN: HeaderValue = HeaderValue::from_static("text/plain; charset=utf-8");

/// Returns the response to a denied request: 429 or 403.
pub(super) fn denied(denied: &Denied<'_>, retry_after: Option<u64>) -> Response<Bytes> {
    let body = match retry_after {
        _ if denied.is_over_capacity() => {
            Bytes::from_static(b"This request costs more than the quota can ever hold.\n")
        }
        Some(seconds) => {
            let mut digits = itoa::Buffer::new();
            ["Too many requests. Retry in ", digits.format(seconds), " s.\n"].concat().into()
        }
        None => Bytes::from_static(b"Too many requests.\n"),
    };
    response(status(denied), TEXT_PLAIN, body)
}

/// Returns the response 503, for a store that cannot answer.
pub(super) fn unavailable() -> Response<Bytes> {
    let body = Bytes::from_static(b"The request cannot be admitted at the moment.\n");
    response(StatusCode::SERVICE_UNAVAILABLE, TEXT_PLAIN, body)
}
