//! The recognition of gRPC requests, and the content type of their responses.

use http::{HeaderValue, Method, Version, header::CONTENT_TYPE, request::Parts};

/// The content types of responses, in lower case. A response never repeats the text of the client.
static BASES: [HeaderValue; 3] = [
    HeaderValue::from_static("application/grpc"),
    HeaderValue::from_static("application/grpc-web"),
    HeaderValue::from_static("application/grpc-web-text"),
];
static GRPC_FORMATS: [HeaderValue; 2] = [
    HeaderValue::from_static("application/grpc+proto"),
    HeaderValue::from_static("application/grpc+json"),
];
static GRPC_WEB_FORMATS: [HeaderValue; 3] = [
    HeaderValue::from_static("application/grpc-web+proto"),
    HeaderValue::from_static("application/grpc-web+json"),
    HeaderValue::from_static("application/grpc-web-text+proto"),
];

/// Returns the content type of the response to a gRPC or gRPC-Web request, and `None` for any other
/// request.
///
/// - The method is POST, so that a denial with status 200 is never cached as the response to a GET request.
/// - gRPC uses HTTP/2 (gRPC over HTTP2, "Requests"). gRPC-Web uses any version of HTTP
///   (PROTOCOL-WEB.md, "HTTP wire protocols").
/// - There is one content type. Its case and its parameters have no effect (RFC 9110, section
///   8.3.1).
pub(super) fn of_response(parts: &Parts) -> Option<HeaderValue> {
    if parts.method != Method::POST {
        return None;
    }
    let mut values = parts.headers.get_all(CONTENT_TYPE).iter();
    let (Some(value), None) = (values.next(), values.next()) else { return None };
    let media_type = value.as_bytes().split(|byte| *byte == b';').next()?.trim_ascii();
    let base = base(media_type)?;
    let is_web = base != "application/grpc";
    if !is_web && parts.version < Version::HTTP_2 {
        return None;
    }
    let with_format: &[HeaderValue] = if is_web { &GRPC_WEB_FORMATS } else { &GRPC_FORMATS };
    let has_format = media_type.len() > base.len();
    let same =
        |known: &&HeaderValue| has_format && media_type.eq_ignore_ascii_case(known.as_bytes());
    // The response has no messages, so their format has no effect. A client with an unknown format gets
    // the content type without a format.
    Some(with_format.iter().find(same).unwrap_or(base).clone())
}

/// Returns the media type without its message format (`+proto`), if it is one of gRPC.
fn base(media_type: &[u8]) -> Option<&'static HeaderValue> {
    let plus = media_type.iter().position(|byte| *byte == b'+');
    let (base, format) = media_type.split_at(plus.unwrap_or(media_type.len()));
    let found = BASES.iter().find(|known| base.eq_ignore_ascii_case(known.as_bytes()))?;
    let in_format = |byte: &u8| byte.is_ascii_alphanumeric() || b"._-".contains(byte);
    (format != b"+" && format.iter().skip(1).all(in_format)).then_some(found)
}
