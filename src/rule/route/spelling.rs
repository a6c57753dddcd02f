//! Spellings of a path, and the normal form that they share.

use std::borrow::Cow;

use http::request::Parts;
use percent_encoding::percent_decode_str;

use super::path;

/// A mark in the extensions of a request: routes consider only the spelling that was sent.
#[derive(Debug, Clone, Copy)]
struct Exactly;

/// Returns whether a request has a path that can be written in another way, so that its normal form
/// must be compared.
pub(crate) fn has_other_spelling(parts: &Parts) -> bool {
    has_another(path(parts), parts.uri.path())
}

/// Returns whether one of the paths of a request is not its own normal form.
pub(super) fn has_another(path: &str, inner_path: &str) -> bool {
    // Outside of a nested router, both are the same.
    !is_normal(path) || (inner_path != path && !is_normal(inner_path))
}

/// Applies `matches` to a request in such a way that routes consider the spelling that was sent, and
/// no other.
#[cold]
pub(crate) fn exactly(parts: &mut Parts, matches: impl Fn(&Parts) -> bool) -> bool {
    parts.extensions.insert(Exactly);
    let matches = matches(parts);
    parts.extensions.remove::<Exactly>();
    matches
}

/// Returns whether [`exactly`] is evaluating a closure for this request.
pub(super) fn is_exact(parts: &Parts) -> bool {
    parts.extensions.get::<Exactly>().is_some()
}

/// Returns true if a path is certainly its own normal form. For a segment such as `.well-known`, it
/// returns false, and the caller has to compare the [normal form](normal).
pub(super) fn is_normal(path: &str) -> bool {
    let (bytes, mut other) = (path.as_bytes(), false);
    // Without branches, this takes few instructions for each byte.
    for (first, second) in bytes.iter().zip(bytes.iter().skip(1)) {
        other |= (*second == b'%') | ((*first == b'/') & ((*second == b'/') | (*second == b'.')));
    }
    !other && (bytes.len() < 2 || !bytes.ends_with(b"/"))
}

/// Returns the normal form of a path. Percent-encoding is decoded once, and invalid encodings stay as
/// they are. Empty segments and `.` are removed, and `..` removes the segment before it (RFC 3986,
/// sections 5.2.4 and 6.2.2).
pub(super) fn normal(path: &str) -> Vec<u8> {
    let decoded: Cow<'_, [u8]> = percent_decode_str(path).into();
    let mut normal = Vec::with_capacity(decoded.len());
    for segment in decoded.split(|byte| *byte == b'/') {
        match segment {
            b"" | b"." => {}
            b".." => normal.truncate(normal.iter().rposition(|it| *it == b'/').unwrap_or(0)),
            segment => {
                normal.push(b'/');
                normal.extend_from_slice(segment);
            }
        }
    }
    if normal.is_empty() { vec![b'/'] } else { normal }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spellings_of_a_path_have_one_normal_form() {
        for other in [
            "/a/b",
            "/a/b/",
            "//a/b",
            "/a//b",
            "/./a/b",
            "/a/./b",
            "/a/b/.",
            "/x/../a/b",
            "/a/b/c/..",
            "/%61/b",
            "/%61/%62",
            "/a%2Fb",
            "/a%2fb",
            "/a/%2e/b",
            "/../a/b",
            "/a/x/%2E%2e/b",
        ] {
            assert_eq!(normal(other), b"/a/b", "{other}");
            assert_eq!(is_normal(other), other == "/a/b", "{other}");
        }
        for other in ["/a", "/ab", "/a/B", "/a/b/c", "/a/%2562", "/a/%b", "/a/b%", "/a/%zz", "/"] {
            assert_ne!(normal(other), b"/a/b", "{other}");
        }
        assert_eq!(normal("/%C3%A9%"), "/é%".as_bytes());
        assert_eq!(normal("/.well-known"), b"/.well-known");
        assert_eq!(normal("/x/.."), b"/");
        assert!(is_normal("/") && is_normal("") && is_normal("*") && is_normal("/a.b/c"));
    }
}
