//! The common part of the HTTP responses to denied requests.

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Response, StatusCode, header::CONTENT_TYPE};

use crate::decision::{Denied, Outcome, Verdict};

/// Returns the status of a denial: 403 if a cost is over capacity, so that no wait helps, and 429
/// otherwise.
pub(super) fn status(denied: &Denied<'_>) -> StatusCode {
    match denied.is_over_capacity() {
        true => StatusCode::FORBIDDEN,
        false => StatusCode::TOO_MANY_REQUESTS,
    }
}

/// Returns the outcomes that denied the check.
pub(super) fn violations<'a>(denied: &'a Denied<'_>) -> impl Iterator<Item = Outcome<'a>> {
    denied
        .outcomes()
        .iter()
        .filter(|outcome| !outcome.charge().is_shadow() && outcome.verdict() != Verdict::Passed)
}

/// Creates a response with a body.
pub(super) fn response(
    status: StatusCode,
    content_type: HeaderValue,
    body: Bytes,
) -> Response<Bytes> {
    let mut response = Response::new(body);
    *response.status_mut() = status;
    // The capacity is enough for all headers of a denial, so the map does not grow.
    *response.headers_mut() = HeaderMap::with_capacity(8);
    response.headers_mut().insert(CONTENT_TYPE, content_type);
    response
}
