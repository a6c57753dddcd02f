//! Keys in the head of a request: a header, a bearer token, an extension, a parameter of the path. And keys
//! that are the same for all requests.

#[cfg(feature = "axum")]
use std::{
    borrow::Cow,
    pin::pin,
    task::{Context, Poll, Waker},
};

#[cfg(feature = "axum")]
use axum::extract::{FromRequestParts, RawPathParams};
#[cfg(feature = "axum")]
use http::Request;
use http::{HeaderName, HeaderValue, header::AUTHORIZATION, request::Parts};

use crate::key::{Identity, IntoIdentity, Key};
#[cfg(feature = "axum")]
use crate::rule::route;

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

/// Charges one [`Key`] for all requests, so that they share one budget.
pub fn constant(
    key: impl Into<Key>,
) -> impl Fn(&Parts) -> Identity + Clone + Send + Sync + 'static {
    let key = key.into();
    move |_: &Parts| Identity::Known(key)
}

/// Charges [`Key::ANONYMOUS`], the key that all unidentified clients share.
///
/// # Examples
///
/// A server on a Unix socket, whose requests have no peer address. Without the last part, they would be
/// [rejected](Identity::NoPeer):
///
/// ```
/// use plimsoll::by::{self, Or};
///
/// let client = by::peer_ip().or(by::anonymous());
/// ```
pub fn anonymous() -> impl Fn(&Parts) -> Identity + Clone + Send + Sync + 'static {
    constant(Key::ANONYMOUS)
}

/// Charges the [`Key`] that `key` returns for the `T` in the extensions of the request. An earlier
/// layer, such as authentication, inserts the `T`. Requests without it are [`Identity::Unknown`].
///
/// # Examples
///
/// ```
/// use plimsoll::by;
///
/// #[derive(Clone)]
/// struct User { id: u64 }
///
/// let user = by::extension(|user: &User| user.id);
/// ```
pub fn extension<T, F, K>(key: F) -> impl Fn(&Parts) -> Identity + Clone + Send + Sync + 'static
where
    T: Send + Sync + 'static,
    F: Fn(&T) -> K + Clone + Send + Sync + 'static,
    K: IntoIdentity,
{
    move |parts: &Parts| {
        parts.extensions.get::<T>().map_or(Identity::Unknown, |value| key(value).into_identity())
    }
}

/// Charges the parameter `name` of the route that axum has matched: the `id` of `/users/{id}`, the
/// `name` of `/user_{name}`, or the `path` of `/files/{*path}`. These are axum's own parameters, including
/// parameters of nested routers. The value is percent-decoded, as handlers see it.
///
/// A request is [`Identity::Unknown`] in these cases:
///
/// - Its route has no such parameter.
/// - No route is matched yet, as in a layer around the whole `Router`. Use `Router::layer` or
///   `Router::route_layer`.
/// - One of its parameters is not UTF-8 after decoding. Extractors such as `Path` reject such a
///   request.
///
/// The client writes the path, and so chooses the key: see the warning at
/// [`header`]. A name is charged as it is written: see [`Key::from_name`].
///
/// axum's extractor of parameters needs a request head that it can change, so this extractor clones the
/// extensions of each request.
#[cfg(feature = "axum")]
pub fn path_param(
    name: impl Into<Cow<'static, str>>,
) -> impl Fn(&Parts) -> Identity + Clone + Send + Sync + 'static {
    let name = name.into();
    move |parts: &Parts| {
        let params = of_axum(parts);
        let values = params.iter().flatten();
        // If an inner router has a parameter of the same name, its handlers see the inner value.
        let value = values.filter(|(found, _)| **found == *name).last();
        Identity::from(value.map(|(_, value)| Key::from(value)))
    }
}

/// Returns the parameters that axum has inserted into the extensions, under a type that only this
/// extractor can name. The extractor never waits.
#[cfg(feature = "axum")]
fn of_axum(parts: &Parts) -> Option<RawPathParams> {
    let (mut owned, ()) = Request::new(()).into_parts();
    owned.extensions = parts.extensions.clone();
    let extracted = pin!(RawPathParams::from_request_parts(&mut owned, &()));
    match extracted.poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(params) => params.ok(),
        Poll::Pending => None,
    }
}

/// Charges the pattern of the route that axum has matched, such as `/users/{id}`. All clients share
/// one budget for each route. To give each client a budget of its own, pair it with the client by
/// [`And`](super::And).
///
/// Requests that matched no route are [`Identity::Unknown`]. Use `Router::layer` or
/// `Router::route_layer`: a layer around the whole `Router` runs before a route is matched.
#[cfg(feature = "axum")]
pub fn matched_route() -> impl Fn(&Parts) -> Identity + Clone + Send + Sync + 'static {
    |parts: &Parts| Identity::from(route::matched(parts).map(Key::from))
}
