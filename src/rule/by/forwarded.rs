//! What the elements of `X-Forwarded-For` and `Forwarded` (RFC 7239) say, from the last to the
//! first.

use std::net::IpAddr;

use http::{HeaderName, request::Parts};

use super::address;

/// The elements of a header's lines, joined into one list, from the last to the first.
///
/// A comma always separates, also between quotes: an element is then judged by itself, whatever a
/// client has written before it, and an element that a comma has torn apart does not parse.
pub(super) fn elements<'p>(
    parts: &'p Parts,
    name: &HeaderName,
) -> impl Iterator<Item = &'p [u8]> + use<'p> {
    let lines = parts.headers.get_all(name).iter().rev();
    lines.flat_map(|line| line.as_bytes().rsplit(|byte| *byte == b',')).map(trim)
}

/// The address of an element of `Forwarded`: `for=192.0.2.43`, `for="[2001:db8::1]:4711";proto=http`.
/// `None` if it has none, or is not well formed. RFC 7239 lets pairs be empty, also at the end.
pub(super) fn node(element: &[u8]) -> Option<IpAddr> {
    // Most elements are no more than this.
    if let [b'f' | b'F', b'o' | b'O', b'r' | b'R', b'=', rest @ ..] = element
        && let Some(address) = address::v4(rest)
    {
        return Some(IpAddr::V4(address));
    }
    let mut found = None;
    let pairs = element.split(|byte| *byte == b';').map(trim);
    for pair in pairs.filter(|pair| !pair.is_empty()) {
        let equals = pair.iter().position(|byte| *byte == b'=')?;
        let (name, value) = (trim(&pair[..equals]), unquote(trim(&pair[equals + 1..]))?);
        if !is_token(name) {
            return None;
        }
        if name.eq_ignore_ascii_case(b"for") && found.replace(value).is_some() {
            return None;
        }
    }
    address::parse(found?)
}

/// The text of a token or of a quoted string without escapes: none of them occurs in an address.
fn unquote(value: &[u8]) -> Option<&[u8]> {
    match value {
        [b'"', text @ .., b'"'] => {
            (!text.iter().any(|byte| matches!(byte, b'"' | b'\\'))).then_some(text)
        }
        token => is_token(token).then_some(token),
    }
}

/// RFC 9110, section 5.6.2, and the colon and brackets that many senders leave unquoted.
fn is_token(text: &[u8]) -> bool {
    !text.is_empty() && text.iter().all(|byte| TOKEN[usize::from(*byte)])
}

const TOKEN: [bool; 256] = {
    let mut allowed = [false; 256];
    let mut byte = b'0';
    while byte <= b'z' {
        allowed[byte as usize] = byte.is_ascii_alphanumeric();
        byte += 1;
    }
    let mut others: &[u8] = b"!#$%&'*+-.^_`|~:[]";
    while let [byte, rest @ ..] = others {
        allowed[*byte as usize] = true;
        others = rest;
    }
    allowed
};

/// Without the optional white space around it.
fn trim(text: &[u8]) -> &[u8] {
    text.trim_ascii()
}
