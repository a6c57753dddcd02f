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
    let path = path(parts);
    let inner_path = parts.uri.path();
    // Outside of a nested router, both are the same.
    !is_normal(path) || (inner_path != path && !is_normal(inner_path))
}

/// Applies `matches` to a request in such a way that routes consider the spelling that was sent, and
/// no other.
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
    let bytes = path.as_bytes();
    let mut other = false;
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

/// Returns whether a handler may receive `path` as another spelling of `target`, which is in normal form.
/// With `is_prefix`, the path may have further segments, and needs at least one.
///
/// A nested router, or a service behind this one, removes a prefix of the path. A handler there
/// normalizes the rest alone, and `..` at its start removes nothing: under `/api`, the path
/// `/api/../login` is `/login`. The routers inside of a layer are not known, so each beginning of the
/// path may be such a prefix.
pub(super) fn may_reach(path: &str, target: &[u8], is_prefix: bool) -> bool {
    let decoded: Cow<'_, [u8]> = percent_decode_str(path).into();
    let path = segments(&decoded);
    let target = segments(target);
    // For each prefix: the length of its normal form, and how many segments that has in common with
    // the start of the target.
    let mut prefixes = vec![(0, 0)];
    let mut len = 0_usize;
    let mut common = 0;
    for segment in &path {
        if *segment == b".." {
            len = len.saturating_sub(1);
            common = common.min(len);
        } else {
            common += usize::from(common == len && target.get(len) == Some(segment));
            len += 1;
        }
        prefixes.push((len, common));
    }
    // The normal form of the rest after a prefix, from its end.
    let mut rest = Vec::new();
    let mut removed = 0;
    while let Some((len, common)) = prefixes.pop() {
        if common == len.min(target.len()) {
            let total = len + rest.len();
            let missing = &target[common..];
            let is_long_enough =
                if is_prefix { total > target.len() } else { total == target.len() };
            if is_long_enough && rest.iter().rev().zip(missing).all(|(it, wanted)| it == wanted) {
                return true;
            }
        }
        match prefixes.len().checked_sub(1).map(|last| path[last]) {
            Some(b"..") => removed += 1,
            Some(_) if removed > 0 => removed -= 1,
            Some(segment) => rest.push(segment),
            None => {}
        }
    }
    false
}

/// Returns the segments of a decoded path, without those that are empty or `.`.
fn segments(path: &[u8]) -> Vec<&[u8]> {
    path.split(|byte| *byte == b'/').filter(|it| !matches!(*it, b"" | b".")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_prefix_of_a_path_may_belong_to_a_nested_router() {
        for path in [
            "/api/login",
            "/api/../login",
            "/api/x/../../login",
            "/api//%2e%2e/login/",
            "/x/../api/../login",
            "/api/../../x/../login",
        ] {
            assert!(may_reach(path, b"/api/login", false), "{path}");
        }
        for path in ["/login", "/../login", "/api/../x", "/x/../login", "/api", "/api/login/x"] {
            assert!(!may_reach(path, b"/api/login", false), "{path}");
        }
        // Without a prefix, the normal form counts.
        for path in ["/api/../login", "/x/%2E./login/.", "/../login"] {
            assert!(may_reach(path, b"/login", false), "{path}");
        }
        for path in ["/", "/..", "/x/..", "/x/../.."] {
            assert!(may_reach(path, b"/", false), "{path}");
        }
        assert!(may_reach("/a/../x", b"/a", true) && may_reach("/x/../a/b", b"/a", true));
        for path in ["/a", "/a/", "/a/..", "/b/a", "/ab/c"] {
            assert!(!may_reach(path, b"/a", true), "{path}");
        }
    }

    /// Every prefix is tried, but a long path takes time in proportion to its length.
    #[test]
    fn a_long_path_is_compared_once() {
        let path = "/a/..".repeat(200_000);
        assert!(!may_reach(&path, b"/b", false) && may_reach(&path, b"/a", false));
    }

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
