//! The closures and the [key types](KeyType) of the keys of rules.

use std::sync::Arc;

use http::{HeaderValue, header::COOKIE, request::Parts};
use plimsoll::{
    Key,
    by::{self, ClientIp},
    key::Identity,
};

use super::{Claims, spec::KeySpec};
use crate::key_type::{KeyType, key_of_parts};

/// A closure that finds the key of a request.
pub(super) type Extract = Arc<dyn Fn(&Parts) -> Identity + Send + Sync>;

/// Returns the closure of a key. `client_ip` is the source of the address of the client.
pub(super) fn extract(key: &KeySpec, client_ip: &ClientIp) -> Extract {
    let parts =
        |keys: &[KeySpec]| -> Vec<_> { keys.iter().map(|key| extract(key, client_ip)).collect() };
    match key.clone() {
        KeySpec::ClientIp => Arc::new(by::client_ip(client_ip.clone())),
        KeySpec::PeerIp => Arc::new(by::peer_ip()),
        KeySpec::BearerToken => Arc::new(by::bearer_token()),
        KeySpec::MatchedRoute => Arc::new(by::matched_route()),
        KeySpec::Anonymous => Arc::new(by::anonymous()),
        KeySpec::Header(name) => Arc::new(by::header(name.0.as_str())),
        KeySpec::NameInHeader(name) => {
            let header = by::header(name.0.as_str());
            Arc::new(move |parts| match header(parts) {
                // Different values, or none, are no name.
                Identity::Known(key) if key != Key::ANONYMOUS => {
                    let value = parts.headers.get(&name.0).map(HeaderValue::as_bytes);
                    let value = String::from_utf8_lossy(value.unwrap_or_default());
                    Identity::Known(Key::from_name(&value))
                }
                other => other,
            })
        }
        KeySpec::Cookie(name) => Arc::new(move |parts| cookie(parts, &name)),
        KeySpec::PathParam(name) => Arc::new(by::path_param(name)),
        KeySpec::Claim(name) => Arc::new(move |parts| {
            let claims = parts.extensions.get::<Claims>();
            Identity::from(claims.and_then(|claims| claims.get(&name)).map(Key::from))
        }),
        KeySpec::Constant(text) => Arc::new(by::constant(text)),
        KeySpec::FirstOf(keys) => {
            let keys = parts(&keys);
            Arc::new(move |parts| {
                let unknown = Identity::Unknown;
                keys.iter().fold(unknown, |found, key| found.or_else(|| key(parts)))
            })
        }
        KeySpec::AllOf(keys) => {
            let keys = parts(&keys);
            Arc::new(move |parts| all_of(keys.iter().map(|key| key(parts))))
        }
    }
}

/// Returns the key of all these [identities](Identity), as [`by::And`] does of two.
fn all_of(identities: impl Iterator<Item = Identity>) -> Identity {
    let mut keys = Vec::new();
    let mut missing = None;
    for identity in identities {
        match identity {
            Identity::Known(key) => keys.push(key),
            Identity::Exempt => return Identity::Exempt,
            Identity::NoPeer => missing = Some(Identity::NoPeer),
            _ => missing = missing.or(Some(Identity::Unknown)),
        }
    }
    missing.unwrap_or_else(|| Identity::from(key_of_parts(&keys)))
}

/// Returns the value of a cookie as the key. Requests with several different values are charged to the
/// shared key, as those with several values of a header are.
fn cookie(parts: &Parts, name: &str) -> Identity {
    let headers = parts.headers.get_all(COOKIE).iter();
    let pairs = headers.flat_map(|header| header.as_bytes().split(|byte| *byte == b';'));
    let mut values = pairs.filter_map(|pair| {
        let at = pair.iter().position(|byte| *byte == b'=')?;
        let value = pair[at + 1..].trim_ascii();
        (pair[..at].trim_ascii() == name.as_bytes() && !value.is_empty()).then_some(value)
    });
    match values.next() {
        None => Identity::Unknown,
        Some(first) if values.all(|value| value == first) => Identity::Known(Key::from(first)),
        Some(_) => Identity::Known(Key::ANONYMOUS),
    }
}

/// Returns how an operator writes a key.
pub(super) fn key_type(key: &KeySpec, client_ip: &ClientIp) -> KeyType {
    let types =
        |keys: &[KeySpec]| -> Vec<_> { keys.iter().map(|key| key_type(key, client_ip)).collect() };
    match key {
        KeySpec::ClientIp => KeyType::Address(client_ip.clone()),
        KeySpec::PeerIp => KeyType::Address(ClientIp::peer()),
        KeySpec::Anonymous => KeyType::Anonymous,
        KeySpec::NameInHeader(_) => KeyType::Name,
        KeySpec::BearerToken
        | KeySpec::MatchedRoute
        | KeySpec::Header(_)
        | KeySpec::Cookie(_)
        | KeySpec::PathParam(_)
        | KeySpec::Claim(_)
        | KeySpec::Constant(_) => KeyType::Text,
        KeySpec::FirstOf(keys) => either(types(keys)),
        KeySpec::AllOf(keys) => match &keys[..] {
            [one] => key_type(one, client_ip),
            _ => KeyType::Tuple(types(keys)),
        },
    }
}

/// Returns the type of a key that has one of several types. More special types come first, because any value
/// is also a valid text.
pub(super) fn either(mut types: Vec<KeyType>) -> KeyType {
    types.sort_by_key(|kind| match kind {
        KeyType::Anonymous => 0,
        KeyType::Address(_) | KeyType::Integer => 1,
        KeyType::Tuple(_) => 2,
        KeyType::FirstOf(_) => 3,
        KeyType::Name | KeyType::Text => 4,
    });
    match <[KeyType; 1]>::try_from(types) {
        Ok([one]) => one,
        Err(types) => KeyType::FirstOf(types),
    }
}
