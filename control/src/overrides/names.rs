//! The keys of overrides, as operators name them and as they are shown.

use plimsoll::Key;

use super::{
    Override, OverrideError,
    apply::Entries,
    entry::{digest, field, find},
};
use crate::Registry;

/// Returns the field of an override, by its key or by the digest of the key. The registry need not have its
/// policy.
pub(super) fn find_field(
    registry: &Registry,
    entries: &Entries,
    policy: &str,
    key: Option<&str>,
) -> Result<String, OverrideError> {
    let found = find(registry, policy, key);
    let by_key = found.map(|(_, key)| field(policy, key.as_ref()));
    if by_key.as_ref().is_ok_and(|field| entries.contains_key(field)) {
        return by_key;
    }
    let is_named = |entry: &&Override| {
        let (Some(known), Some(key)) = (&entry.key, key) else {
            return entry.key.is_none() == key.is_none();
        };
        known == key || (key.starts_with('#') && shown_key(registry, policy, known) == key)
    };
    let mut of_policy = entries.iter().filter(|(_, entry)| entry.policy == policy);
    let named = of_policy.find(|(_, entry)| is_named(entry)).map(|(field, _)| field.clone());
    match (named, by_key) {
        (Some(field), _) => Ok(field),
        (None, Err(OverrideError::Key(_))) if key.is_some_and(|key| key.starts_with('#')) => {
            Err(OverrideError::NotFound)
        }
        (None, by_key) => by_key,
    }
}

/// Returns the digest of a key under a policy.
pub(super) fn shown_key(registry: &Registry, policy: &str, text: &str) -> String {
    match find(registry, policy, Some(text)) {
        Ok((_, Some(key))) => digest(&key),
        _ => digest(&Key::from(text)),
    }
}
