//! A parameter of the path as the key.

use std::borrow::Cow;

use axum::extract::{MatchedPath, OriginalUri};
use http::request::Parts;
use percent_encoding::percent_decode_str;

use crate::key::{Identity, Key};

/// Charges the parameter `name` of the route that axum has matched: the `id` of `/users/{id}`, or
/// the `path` of `/files/{*path}`. The value is percent-decoded, as handlers see it.
///
/// Requests whose route has no such parameter are [`Identity::Unknown`]. The client writes the
/// path, and so chooses the key: see the warning at [`header`](super::header).
pub fn path_param(
    name: &'static str,
) -> impl Fn(&Parts) -> Identity + Clone + Send + Sync + 'static {
    move |parts: &Parts| {
        // The value is decoded so that two spellings of it are one key. Invalid escapes stay.
        let decode = |value| Key::from(&*Cow::from(percent_decode_str(value)));
        Identity::from(find(parts, name).map(decode))
    }
}

/// Finds the parameter by comparing the segments of the pattern and of the path, because axum's own
/// parameters are private.
fn find<'p>(parts: &'p Parts, name: &str) -> Option<&'p str> {
    let pattern = parts.extensions.get::<MatchedPath>()?.as_str();
    // A nested router removes its prefix from the path, but not from the pattern.
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
