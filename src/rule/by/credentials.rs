//! Keys that the client sends: a header or a bearer token.

use http::{HeaderName, HeaderValue, header::AUTHORIZATION, request::Parts};

use crate::key::{Identity, Key};

/// Charges the value of a header, such as an API key. Requests without the header or with an empty
/// value are [`Identity::Unknown`].
///
/// Requests with several different values are charged to [`Key::ANONYMOUS`]. An extractor that is added
/// with [`or`](super::Or::or) is not asked. Otherwise a client could send a second value to be charged
/// by that extractor, while the application still reads its key from the first or the last value.
///
/// The client chooses the value. If no outer layer has verified it, an attacker can send another
/// value with each request and is never limited. In that case, add a [`Rule`](crate::Rule) for the
/// [address](super::client_ip()) of the client.
///
/// The value is charged as it is written: `Dave` and `dave` are two keys. For the names of accounts,
/// use [`Key::from_name`]:
///
/// ```
/// use http::request::Parts;
/// use plimsoll::{Key, Policy, Quota, Rule};
///
/// let logins = Policy::new("logins", Quota::per_minute(3))?;
/// let account = |parts: &Parts| {
///     let name = parts.headers.get("x-account")?;
///     Some(Key::from_name(&String::from_utf8_lossy(name.as_bytes())))
/// };
/// let rule = Rule::new(logins, account);
/// # Ok::<(), plimsoll::Error>(())
/// ```
///
/// The case of `name` is ignored: `X-API-Key` is `x-api-key`.
///
/// # Panics
///
/// Panics if `name` is not the name of a header.
pub fn header(name: &str) -> impl Fn(&Parts) -> Identity + Clone + Send + Sync + use<> {
    let Ok(name) = HeaderName::from_bytes(name.as_bytes()) else {
        panic!("header name is {name:?}, allowed are letters, digits and !#$%&'*+-.^_`|~")
    };
    move |parts: &Parts| match values(parts, &name) {
        Values::One(value) if !value.is_empty() => Identity::Known(Key::from(value)),
        Values::Different => Identity::Known(Key::ANONYMOUS),
        Values::One(_) | Values::None => Identity::Unknown,
    }
}

/// Charges the token of `Authorization: Bearer <token>` (RFC 6750). Requests with another scheme or
/// without a token are [`Identity::Unknown`]. Requests with several different values of
/// `Authorization` are charged to [`Key::ANONYMOUS`], as by [`header`].
///
/// The client chooses the token: see the warning at [`header`].
pub fn bearer_token() -> impl Fn(&Parts) -> Identity + Clone + Send + Sync + 'static {
    |parts: &Parts| match values(parts, &AUTHORIZATION) {
        Values::One(value) => Identity::from(token(value.as_bytes()).map(Key::from)),
        Values::Different => Identity::Known(Key::ANONYMOUS),
        Values::None => Identity::Unknown,
    }
}

/// The values of a header in a request.
enum Values<'p> {
    None,
    /// One value, or the same one several times.
    One(&'p HeaderValue),
    Different,
}

fn values<'p>(parts: &'p Parts, name: &HeaderName) -> Values<'p> {
    let mut values = parts.headers.get_all(name).iter();
    match values.next() {
        None => Values::None,
        Some(first) if values.all(|value| value == first) => Values::One(first),
        Some(_) => Values::Different,
    }
}

fn token(credentials: &[u8]) -> Option<&[u8]> {
    let (scheme, token) = credentials.split_at_checked("bearer ".len())?;
    let token = token.trim_ascii();
    (scheme.eq_ignore_ascii_case(b"bearer ") && !token.is_empty()).then_some(token)
}
