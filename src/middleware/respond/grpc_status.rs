//! The gRPC status of denials, and Trailers-Only responses for gRPC and gRPC-Web clients.

use std::time::Duration;

use base64::{Engine, encoded_len, engine::general_purpose::STANDARD_NO_PAD};
use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, Response, header::CONTENT_TYPE};

use super::{
    grpc_details,
    rejection::{forbid_caching, violations},
};
use crate::{
    clock::micros,
    decision::Denied,
    middleware::headers::{number, whole_seconds},
    outcome::DenialBody,
    random,
    rule::MissingPeer,
};

const GRPC_STATUS: HeaderName = HeaderName::from_static("grpc-status");
const GRPC_MESSAGE: HeaderName = HeaderName::from_static("grpc-message");
const GRPC_STATUS_DETAILS: HeaderName = HeaderName::from_static("grpc-status-details-bin");
const GRPC_RETRY_PUSHBACK: HeaderName = HeaderName::from_static("grpc-retry-pushback-ms");

const RESOURCE_EXHAUSTED: u8 = 8;
const FAILED_PRECONDITION: u8 = 9;
const INTERNAL: u8 = 13;
const UNAVAILABLE: u8 = 14;

/// The status of a rejected call.
pub(super) struct GrpcStatus {
    pub(super) code: u8,
    /// The message, which needs no percent-encoding.
    pub(super) message: String,
    /// `google.rpc.Status` in Protocol Buffers.
    pub(super) details: Vec<u8>,
    /// The wait for clients that follow `grpc-retry-pushback-ms`.
    pushback: Option<Duration>,
}

impl GrpcStatus {
    /// Returns the status of a denied call: `FAILED_PRECONDITION` if a cost is over capacity, and
    /// `RESOURCE_EXHAUSTED` otherwise.
    pub(super) fn denied(denied: &Denied<'_>, jitter: Duration) -> Self {
        let wait = denied.retry_after().filter(|_| !denied.is_over_capacity());
        let mut digits = itoa::Buffer::new();
        let message: [&str; 3] = match wait {
            _ if denied.is_over_capacity() => {
                ["the cost exceeds what the quota can ever hold", "", ""]
            }
            Some(wait) => {
                let seconds = whole_seconds(micros(wait));
                ["quota exceeded; retry in ", digits.format(seconds), " s"]
            }
            None => ["quota exceeded", "", ""],
        };
        let over_capacity = denied.is_over_capacity();
        let code = if over_capacity { FAILED_PRECONDITION } else { RESOURCE_EXHAUSTED };
        let wait = wait.map(|wait| wait.saturating_add(random::part_of(jitter)));
        let message = message.concat();
        let details = grpc_details::encode(code, message.as_bytes(), wait, violations(denied));
        Self { code, message, details, pushback: wait }
    }

    /// Returns `UNAVAILABLE`, for a request that is rejected because the store cannot answer.
    pub(super) fn unavailable(jitter: Duration) -> Self {
        let wait = Duration::from_secs(1).saturating_add(random::part_of(jitter));
        let message = "the request cannot be admitted at the moment".to_owned();
        let violations = std::iter::empty();
        let details = grpc_details::encode(UNAVAILABLE, message.as_bytes(), Some(wait), violations);
        Self { code: UNAVAILABLE, message, details, pushback: None }
    }

    /// Returns `INTERNAL`, for a request without a peer address.
    pub(super) fn no_peer() -> Self {
        let message = MissingPeer::TEXT.to_owned();
        let violations = std::iter::empty();
        let details = grpc_details::encode(INTERNAL, message.as_bytes(), None, violations);
        Self { code: INTERNAL, message, details, pushback: None }
    }

    /// Adds the headers that are not part of the status itself.
    pub(super) fn add_metadata(&self, headers: &mut HeaderMap) {
        forbid_caching(headers);
        if let Some(wait) = self.pushback {
            // Clients parse this number as a 32-bit integer.
            let millis = wait.as_micros().div_ceil(1_000).min(i32::MAX as u128) as u64;
            headers.insert(GRPC_RETRY_PUSHBACK, number(millis));
        }
    }

    /// Creates a response without a body, which both protocols allow (PROTOCOL-WEB.md,
    /// "Trailers-only responses").
    pub(super) fn into_response(self, content_type: HeaderValue) -> Response<DenialBody> {
        let mut response = Response::new(DenialBody::Document(Bytes::new()));
        // The response gets five headers of gRPC, five of rate limits, and `Cache-Control`. In a map that is
        // nearly full, an insertion compares and moves several entries.
        *response.headers_mut() = HeaderMap::with_capacity(16);
        let headers = response.headers_mut();
        headers.insert(CONTENT_TYPE, content_type);
        headers.insert(GRPC_STATUS, number(u64::from(self.code)));
        self.add_metadata(headers);
        if let Ok(message) = HeaderValue::try_from(self.message) {
            headers.insert(GRPC_MESSAGE, message);
        }
        if let Ok(details) = HeaderValue::from_maybe_shared(base64(&self.details)) {
            headers.insert(GRPC_STATUS_DETAILS, details);
        }
        response
    }
}

/// Encodes binary metadata, which gRPC sends without padding. The result is not a [`String`], because
/// checking that it is UTF-8 would cost as much as a header.
fn base64(bytes: &[u8]) -> Bytes {
    let mut text = vec![0; encoded_len(bytes.len(), false).unwrap_or_default()];
    // The length is exact, so this cannot fail.
    let length = STANDARD_NO_PAD.encode_slice(bytes, &mut text).unwrap_or_default();
    text.truncate(length);
    text.into()
}

#[cfg(feature = "tonic")]
mod tonic {
    use std::time::Duration;

    use http::HeaderMap;
    use tonic::{Code, Status, metadata::MetadataMap};

    use super::GrpcStatus;
    use crate::decision::Denied;

    /// The status has the code, the message and the details that a
    /// [`RateLimitLayer`](crate::RateLimitLayer) sends, and its metadata `grpc-retry-pushback-ms`
    /// and `cache-control`. It has no rate limit headers, because a status may be sent in trailers,
    /// where these headers are not allowed.
    impl From<Denied<'_>> for Status {
        fn from(denied: Denied<'_>) -> Self {
            let status = GrpcStatus::denied(&denied, Duration::ZERO);
            let mut metadata = HeaderMap::new();
            status.add_metadata(&mut metadata);
            let (code, metadata) =
                (Code::from_i32(status.code.into()), MetadataMap::from_headers(metadata));
            Self::with_details_and_metadata(code, status.message, status.details.into(), metadata)
        }
    }
}
