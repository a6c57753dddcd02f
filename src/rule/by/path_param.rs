//! By a parameter of the path.

use axum::extract::{MatchedPath, OriginalUri};
use http::request::Parts;
use smallvec::SmallVec;

use crate::key::{Identity, Key};

/// The parameter `name` of the route that axum has matched: of `/users/{id}` the `id`, of
/// `/files/{*path}` the `path`, percent-decoded as handlers see it.
///
/// Requests whose route has no such parameter are [`Identity::Unknown`]. Whoever writes the path
/// chooses the key.
pub fn path_param(
    name: &'static str,
) -> impl Fn(&Parts) -> Identity + Clone + Send + Sync + 'static {
    move |parts: &Parts| Identity::from(find(parts, name).map(|value| Key::from(&*decode(value))))
}

/// Axum keeps its parameters to itself: the pattern and the path are read side by side.
fn find<'p>(parts: &'p Parts, name: &str) -> Option<&'p str> {
    let pattern = parts.extensions.get::<MatchedPath>()?.as_str();
    // In a nested router the path has lost its prefix; the pattern keeps it.
    let original = parts.extensions.get::<OriginalUri>();
    let mut path = original.map_or(&parts.uri, |OriginalUri(uri)| uri).path();
    for segment in pattern.split('/').skip(1) {
        path = path.strip_prefix('/')?;
        if let Some(rest) = segment.strip_prefix("{*").and_then(|rest| rest.strip_suffix('}')) {
            return (rest == name && !path.is_empty()).then_some(path);
        }
        let (value, rest) = path.split_at(path.find('/').unwrap_or(path.len()));
        let parameter = segment.strip_prefix('{').and_then(|segment| segment.strip_suffix('}'));
        if parameter == Some(name) {
            return (!value.is_empty()).then_some(value);
        }
        path = rest;
    }
    None
}

/// Two spellings of one value must not be two keys. Bytes that a bad escape leaves stay as they are.
fn decode(text: &str) -> SmallVec<[u8; 64]> {
    let mut decoded = SmallVec::new();
    let mut bytes = text.bytes();
    while let Some(byte) = bytes.next() {
        let mut ahead = bytes.clone();
        let escaped = (byte == b'%').then(|| Some((hex(ahead.next()?)?, hex(ahead.next()?)?)));
        if let Some(Some((high, low))) = escaped {
            decoded.push(high << 4 | low);
            bytes = ahead;
        } else {
            decoded.push(byte);
        }
    }
    decoded
}

fn hex(digit: u8) -> Option<u8> {
    char::from(digit).to_digit(16).map(|value| value as u8)
}
