//! By the value of a header.

use http::{HeaderName, request::Parts};

use crate::key::{Identity, Key};

/// The value of a header, such as an API key. Requests without it, with an empty one, or with more
/// than one are [`Identity::Unknown`].
///
/// Whoever sends the header chooses the key: an attacker takes a new one for each request, unless
/// something in front has checked it.
///
/// # Panics
///
/// If `name` is not a header name in lower case.
pub fn header(name: &'static str) -> impl Fn(&Parts) -> Identity + Clone + Send + Sync + 'static {
    let name = HeaderName::from_static(name);
    move |parts: &Parts| {
        let mut values = parts.headers.get_all(&name).iter();
        match (values.next(), values.next()) {
            (Some(value), None) if !value.is_empty() => Identity::Known(Key::from(value)),
            _ => Identity::Unknown,
        }
    }
}
