//! Denials in plain text.

use http::{HeaderValue, Response};

use super::{Rejection, rejection::RejectionKind};
use crate::rule::MissingPeer;

const TEXT_PLAIN: HeaderValue = HeaderValue::from_static("text/plain; charset=utf-8");

/// Returns the response with one line of text.
pub(super) fn response(rejection: Rejection<'_>) -> Response<String> {
    let mut digits = itoa::Buffer::new();
    let body = match (rejection.kind(), rejection.retry_after_seconds()) {
        (RejectionKind::OverCapacity, _) => {
            "This request costs more than the quota can ever hold.\n".to_owned()
        }
        (RejectionKind::Unavailable, _) => {
            "The request cannot be admitted at the moment.\n".to_owned()
        }
        (RejectionKind::NoPeer, _) => [MissingPeer::TEXT, "\n"].concat(),
        (RejectionKind::OverQuota, Some(seconds)) => {
            ["Too many requests. Retry in ", digits.format(seconds), " s.\n"].concat()
        }
        (RejectionKind::OverQuota, None) => "Too many requests.\n".to_owned(),
    };
    rejection.into_response(TEXT_PLAIN, body)
}
