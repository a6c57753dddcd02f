//! The policies and the keys that a request names.

use http::StatusCode;
use plimsoll::Key;
use plimsoll_control::{Registered, Registry, document};

use super::problem::Problem;
use crate::access::Client;

/// The longest text of a key, in bytes.
const MAX_KEY_BYTES: usize = 1_024;

/// The most names that a [problem](Problem) lists, and the longest unknown name that it repeats.
const MAX_NAMES: usize = 20;
pub(super) const MAX_NAME_CHARS: usize = 64;

/// Returns the policy of a name that the client may use, and the key under it that a text stands for.
///
/// # Errors
///
/// Returns status 404 if there is no such policy, and also if the client may not use it. Returns status 422 for a key of
/// another form.
pub(super) fn find(
    registry: &Registry,
    client: &Client,
    name: &str,
    key: &str,
) -> Result<(Registered, Key), Problem> {
    // One answer to both, so that a client does not learn the names of the policies of others.
    let registered = registry.get(name).filter(|_| client.may_use(name));
    let registered = registered.ok_or_else(|| unknown(registry, client, name))?;
    // The admin page switches off only policies for which someone asks.
    if !registered.has_switch() {
        drop(registered.switch());
    }
    let key = parse(&registered, key)?;
    Ok((registered, key))
}

fn unknown(registry: &Registry, client: &Client, name: &str) -> Problem {
    let policies = registry.policies();
    let names: Vec<&str> = policies
        .iter()
        .map(|registered| registered.policy().name())
        .filter(|name| client.may_use(name))
        .collect();
    let shown: String = name.chars().take(MAX_NAME_CHARS).collect();
    let nearest = document::nearest(&shown, names.iter().copied());
    let more = if names.len() > MAX_NAMES { ", .." } else { "" };
    let allowed = match names.len() {
        0 => "nothing: this client may use no policy".to_owned(),
        _ => format!("{}{more}", names[..names.len().min(MAX_NAMES)].join(", ")),
    };
    Problem::new(StatusCode::NOT_FOUND, "No such policy", format!("There is no policy {shown:?}"))
        .allowed(allowed)
        .nearest(nearest.map(str::to_owned))
}

fn parse(registered: &Registered, text: &str) -> Result<Key, Problem> {
    if text.len() > MAX_KEY_BYTES {
        let detail = format!("A key has {} bytes", text.len());
        return Err(Problem::invalid(detail, format!("at most {MAX_KEY_BYTES} bytes")));
    }
    registered.keys().parse(text).map_err(|_| {
        let detail =
            format!("A key under the policy {:?} has another form", registered.policy().name());
        Problem::invalid(detail, registered.keys().to_string())
    })
}
