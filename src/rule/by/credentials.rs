//! By what the client presents: a header or a bearer token.

use http::{HeaderName, HeaderValue, header::AUTHORIZATION, request::Parts};

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
        let value = only(parts, &name).filter(|value| !value.is_empty());
        value.map_or(Identity::Unknown, |value| Identity::Known(Key::from(value)))
    }
}

/// The token of `Authorization: Bearer <token>` (RFC 6750). Requests with another scheme, without
/// a token, or with more than one `Authorization` are [`Identity::Unknown`].
///
/// The warning of [`header`] holds here too: check the token first, or join the address.
pub fn bearer_token() -> impl Fn(&Parts) -> Identity + Clone + Send + Sync + 'static {
    |parts: &Parts| {
        let token = only(parts, &AUTHORIZATION).and_then(|value| token(value.as_bytes()));
        Identity::from(token.map(Key::from))
    }
}

fn only<'p>(parts: &'p Parts, name: &HeaderName) -> Option<&'p HeaderValue> {
    let mut values = parts.headers.get_all(name).iter();
    values.next().filter(|_| values.next().is_none())
}

fn token(credentials: &[u8]) -> Option<&[u8]> {
    let (scheme, token) = credentials.split_at_checked("bearer ".len())?;
    let token = token.trim_ascii();
    (scheme.eq_ignore_ascii_case(b"bearer ") && !token.is_empty()).then_some(token)
}
