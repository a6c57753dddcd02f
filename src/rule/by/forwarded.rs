//! The elements of `X-Forwarded-For` and `Forwarded` (RFC 7239), from the last to the first.

use std::net::IpAddr;

use http::{HeaderName, request::Parts};

use super::address;

/// Returns the elements of all lines of a header, from the last to the first. Empty elements are ignored
/// (RFC 9110, section 5.6.1.2).
///
/// Commas separate elements even between quotes. So an element that a proxy has appended is always
/// parsed separately, even if the client has sent an open quote before it. A quoted element with a
/// comma does not parse.
pub(super) fn elements<'p>(
    parts: &'p Parts,
    name: &HeaderName,
) -> impl Iterator<Item = &'p [u8]> + use<'p> {
    let lines = parts.headers.get_all(name).iter().rev();
    let elements =
        lines.flat_map(|line| line.as_bytes().rsplit(|byte| *byte == b',')).map(<[u8]>::trim_ascii);
    elements.filter(|element| !element.is_empty())
}

/// Parses the address in an element of `Forwarded`, such as `for=192.0.2.43` or
/// `for="[2001:db8::1]:4711";proto=http`. Returns `None` if there is none or the element is
/// malformed.
///
/// RFC 7239, section 4, allows empty pairs, also at the end.
pub(super) fn node(element: &[u8]) -> Option<IpAddr> {
    let mut found = None;
    let pairs = element.split(|byte| *byte == b';').map(<[u8]>::trim_ascii);
    for pair in pairs.filter(|pair| !pair.is_empty()) {
        let equals = pair.iter().position(|byte| *byte == b'=')?;
        let (name, value) =
            (pair[..equals].trim_ascii(), unquote(pair[equals + 1..].trim_ascii())?);
        if !is_token(name) {
            return None;
        }
        if name.eq_ignore_ascii_case(b"for") && found.replace(value).is_some() {
            return None;
        }
    }
    address::parse(found?)
}

/// Returns the text of a token or of a quoted string. It does not accept escapes, because no
/// address needs them.
fn unquote(value: &[u8]) -> Option<&[u8]> {
    match value {
        [b'"', text @ .., b'"'] => {
            (!text.iter().any(|byte| matches!(byte, b'"' | b'\\'))).then_some(text)
        }
        token => is_token(token).then_some(token),
    }
}

/// Returns whether the text is a token (RFC 9110, section 5.6.2). Colons and brackets are allowed,
/// because many senders leave IPv6 addresses unquoted.
fn is_token(text: &[u8]) -> bool {
    let is_allowed =
        |byte: &u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~:[]".contains(byte);
    !text.is_empty() && text.iter().all(is_allowed)
}
