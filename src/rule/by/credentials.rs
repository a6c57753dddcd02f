//! Keys that the client sends: a header or a bearer token.

use http::{HeaderName, HeaderValue, header::AUTHORIZATION, request::Parts};

use crate::key::{Identity, Key};

/// Charges the value of a header, such as an API key. Requests without the header, with an empty
/// value, or with more than one value are [`Identity::Unknown`].
///
/// The client chooses the value. If no outer layer has verified it, an attacker can send another
/// value with each request and is never limited. In that case, add a [`Rule`](crate::Rule) for the
/// [address](super::client_ip) of the client.
///
/// # Panics
///
/// Panics if `name` is not a header name in lower case.
pub fn header(name: &'static str) -> impl Fn(&Parts) -> Identity + Clone + Send + Sync + 'static {
    let name = HeaderName::from_static(name);
    move |parts: &Parts| {
        let value = single(parts, &name).filter(|value| !value.is_empty());
        value.map_or(Identity::Unknown, |value| Identity::Known(Key::from(value)))
    }
}

/// Charges the token of `Authorization: Bearer <token>` (RFC 6750). Requests with another scheme,
/// without a token, or with more than one `Authorization` are [`Identity::Unknown`].
///
/// The client chooses the token: see the warning at [`header`].
pub fn bearer_token() -> impl Fn(&Parts) -> Identity + Clone + Send + Sync + 'static {
    |parts: &Parts| {
        let token = single(parts, &AUTHORIZATION).and_then(|value| token(value.as_bytes()));
        Identity::from(token.map(Key::from))
    }
}

/// Returns the value of a header that occurs once.
fn single<'p>(parts: &'p Parts, name: &HeaderName) -> Option<&'p HeaderValue> {
    let mut values = parts.headers.get_all(name).iter();
    values.next().filter(|_| values.next().is_none())
}

fn token(credentials: &[u8]) -> Option<&[u8]> {
    let (scheme, token) = credentials.split_at_checked("bearer ".len())?;
    let token = token.trim_ascii();
    (scheme.eq_ignore_ascii_case(b"bearer ") && !token.is_empty()).then_some(token)
}
