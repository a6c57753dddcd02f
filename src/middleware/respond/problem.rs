//! Denials as problem documents (RFC 9457).

use http::{HeaderValue, Response};
use smallvec::SmallVec;

use super::{Rejection, rejection::RejectionKind, violations::violations};
use crate::{decision::Denied, rule::MissingPeer};

const PROBLEM_JSON: HeaderValue = HeaderValue::from_static("application/problem+json");

/// The documents of denials, up to the end of `detail`.
const QUOTA_EXCEEDED_DOCUMENT: &str = r##"{"type":"https://iana.org/assignments/http-problem-types#quota-exceeded","title":"Quota exceeded","status":429,"detail":"The quota allows "##;
const OVER_CAPACITY_DOCUMENT: &str = r##"{"type":"https://docs.rs/plimsoll/latest/plimsoll/#cost-over-capacity","title":"Cost over capacity","status":403,"detail":"This request costs more than the quota can ever hold: waiting does not help."##;
const UNAVAILABLE_DOCUMENT: &str = r##"{"type":"https://iana.org/assignments/http-problem-types#temporary-reduced-capacity","title":"Temporarily reduced capacity","status":503,"detail":"The request cannot be admitted at the moment."}"##;

/// The document of a request without a peer address, up to its `detail`.
const NO_PEER_DOCUMENT: &str = r##"{"type":"https://docs.rs/plimsoll/latest/plimsoll/by/struct.ClientIp.html#the-address-of-the-peer","title":"No peer address","status":500,"detail":""##;

/// Returns the response with a problem document.
pub(super) fn response(rejection: Rejection<'_>) -> Response<String> {
    let document = match rejection.denied() {
        Some(denied) => document(denied, &rejection),
        None if rejection.kind() == RejectionKind::NoPeer => {
            [NO_PEER_DOCUMENT, MissingPeer::TEXT, "\"}"].concat()
        }
        None => UNAVAILABLE_DOCUMENT.to_owned(),
    };
    rejection.into_response(PROBLEM_JSON, document)
}

/// Returns the document of a denial, with the names of the violated policies.
fn document(denied: &Denied<'_>, rejection: &Rejection<'_>) -> String {
    let mut seconds = itoa::Buffer::new();
    let mut parts: SmallVec<[&str; 8]> = SmallVec::new();
    match rejection.retry_after_seconds() {
        _ if rejection.kind() == RejectionKind::OverCapacity => parts.push(OVER_CAPACITY_DOCUMENT),
        Some(wait) => parts.extend([
            QUOTA_EXCEEDED_DOCUMENT,
            "this request again in ",
            seconds.format(wait),
            " seconds.",
        ]),
        None => parts.extend([QUOTA_EXCEEDED_DOCUMENT, "no such request at the moment."]),
    }
    parts.push(r#"","violated-policies":[""#);
    for (index, outcome) in violations(denied).enumerate() {
        if index > 0 {
            parts.push(r#"",""#);
        }
        // The names of policies contain no characters that JSON escapes.
        parts.push(outcome.policy().name());
    }
    parts.push(r#""]}"#);
    parts.concat()
}
