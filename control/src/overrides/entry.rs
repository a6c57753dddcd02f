//! An [override](Override), the request for one, and the effect of a request.

use std::{collections::BTreeMap, fmt, mem::discriminant, time::SystemTime};

use plimsoll::{Key, Quota};
use serde::{Deserialize, Serialize};

use super::OverrideError;
use crate::{
    Registered, Registry,
    time::{from_millis, millis, optional_millis},
};

/// A change of a policy, or of one key under it, that an operator has made.
///
/// As JSON, times are milliseconds since the Unix epoch.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Override {
    /// The name of the policy.
    pub policy: String,
    /// The key that it applies to, or `None` if it applies to the policy. In the lists of
    /// [`Overrides`](super::Overrides), it is a digest such as `#1f2e3d4c`, which is also in log lines, unless
    /// [`show_keys`](super::Overrides::show_keys) was called.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,
    /// The change that it makes.
    pub kind: OverrideKind,
    /// The time at which it ends, or `None` if it applies until it is removed.
    #[serde(default, with = "optional_millis", skip_serializing_if = "Option::is_none")]
    pub until: Option<SystemTime>,
    /// The time at which it was set.
    #[serde(with = "millis")]
    pub since: SystemTime,
    /// The person or program that has set it.
    pub by: String,
    /// The reason for the change.
    pub reason: String,
    /// The version at which it was set. Versions only grow.
    pub version: u64,
}

/// The change that an [`Override`] makes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum OverrideKind {
    /// The [quota](Quota) of the policy, or of one key under it.
    Quota(Quota),
    /// The policy is switched off: see [`Registered::is_enabled`](crate::Registered::is_enabled).
    Off,
    /// The key is [blocked](plimsoll::Limiter::block).
    Block,
}

/// The request to set an [`Override`].
#[derive(Clone)]
pub struct NewOverride {
    /// The name of a policy of the [`Registry`].
    pub policy: String,
    /// The key, written as its [`KeyType`](crate::KeyType) says, or `None` to change the policy.
    pub key: Option<String>,
    /// The change.
    pub kind: OverrideKind,
    /// The time at which the [override](Override) ends, or `None` if it applies until it is removed.
    pub until: Option<SystemTime>,
    /// The person or program that sets it. From 1 to 128 bytes.
    pub by: String,
    /// The reason for the change. From 1 to 1,000 bytes.
    pub reason: String,
    /// The [version](Override::version) of the override that this one replaces, or 0 if there is none. If
    /// there is another one, nothing changes. `None` replaces any.
    pub version: Option<u64>,
}

/// The effect of a request.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Change {
    /// The override before.
    pub before: Option<Override>,
    /// The override after.
    pub after: Option<Override>,
    /// The version of the change.
    pub version: u64,
    /// The limit that was in force before: a [quota](Quota) such as `100/min`, `off`, or `block`. `None` if
    /// this process does not have the policy.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub in_force_before: Option<String>,
    /// The limit that is in force after.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub in_force_after: Option<String>,
    /// The reason for which this instance could not apply the change yet. It is stored, other instances apply
    /// it, and this one tries again each second.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub not_applied: Option<String>,
}

/// The overrides by their fields.
pub(super) type Entries = BTreeMap<String, Override>;

/// A change of one override.
#[derive(Clone, Copy)]
pub(super) enum Edit<'a> {
    Set(&'a NewOverride),
    /// Removes the override if it has this version, or any version for `None`.
    Remove(Option<u64>),
}

impl Edit<'_> {
    /// Returns the version that the override must have.
    pub(super) fn expected(self) -> Option<u64> {
        match self {
            Self::Set(new) => new.version,
            Self::Remove(expected) => expected,
        }
    }
}

/// The longest text of a key.
const MAX_KEY_BYTES: usize = 1_024;
const MAX_BY_BYTES: usize = 128;
const MAX_REASON_BYTES: usize = 1_000;

impl NewOverride {
    /// Checks the request, and returns the policy with the key that it is about.
    pub(super) fn check(
        &self,
        registry: &Registry,
    ) -> Result<(Registered, Option<Key>), OverrideError> {
        check_author(&self.by, &self.reason)?;
        let (policy, key) = find(registry, &self.policy, self.key.as_deref())?;
        match (self.kind, key) {
            (OverrideKind::Off, Some(_)) => {
                let allowed = "a quota or a block; only a whole policy is switched off";
                return Err(OverrideError::invalid("kind", "off", allowed));
            }
            (OverrideKind::Block, None) => {
                let allowed = "a quota or off; only a key is blocked";
                return Err(OverrideError::invalid("kind", "block", allowed));
            }
            (OverrideKind::Quota(quota), _) => check_algorithm(&policy, quota)?,
            _ => {}
        }
        Ok((policy, key))
    }

    /// Returns the override at this version, which is the time in microseconds.
    pub(super) fn at(&self, version: u64) -> Override {
        Override {
            policy: self.policy.clone(),
            key: self.key.clone(),
            kind: self.kind,
            until: self.until,
            since: from_millis(version / 1_000),
            by: self.by.clone(),
            reason: self.reason.clone(),
            version,
        }
    }
}

/// Checks that the units that are spent under the policy count under the new quota too.
pub(super) fn check_algorithm(policy: &Registered, quota: Quota) -> Result<(), OverrideError> {
    let (configured, _) = policy.configured();
    let is_same = discriminant(&configured.algorithm()) == discriminant(&quota.algorithm());
    if is_same && configured.is_concurrent() == quota.is_concurrent() {
        return Ok(());
    }
    let value = format!("{quota}, which counts by {}", quota.algorithm().name());
    let allowed = format!(
        "a quota that counts by {}, such as {configured}: under another algorithm all keys would start \
         with no units spent",
        configured.algorithm().name()
    );
    Err(OverrideError::invalid("quota", value, allowed))
}

/// Checks who asks for a change, and why.
pub(super) fn check_author(by: &str, reason: &str) -> Result<(), OverrideError> {
    let check = |field, text: &str, max| match text.len() {
        0 => Err(OverrideError::invalid(field, "empty", format!("1 to {max} bytes"))),
        length if length > max => {
            let value = format!("a text of {length} bytes");
            Err(OverrideError::invalid(field, value, format!("1 to {max} bytes")))
        }
        _ => Ok(()),
    };
    check("by", by.trim(), MAX_BY_BYTES)?;
    check("reason", reason.trim(), MAX_REASON_BYTES)
}

/// Returns the policy of this name, and the key that the text stands for.
pub(crate) fn find(
    registry: &Registry,
    policy: &str,
    key: Option<&str>,
) -> Result<(Registered, Option<Key>), OverrideError> {
    let registered = registry.get(policy);
    let registered = registered.ok_or_else(|| OverrideError::UnknownPolicy {
        policy: policy.chars().take(100).collect(),
        known: registry.policies().iter().map(|it| it.policy().name().into()).collect(),
    })?;
    let Some(text) = key else { return Ok((registered, None)) };
    check_length(text)?;
    let key = registered.keys().parse(text).map_err(OverrideError::Key)?;
    Ok((registered, Some(key)))
}

/// Checks that a text is not too long for a key.
pub(crate) fn check_length(text: &str) -> Result<(), OverrideError> {
    if text.len() <= MAX_KEY_BYTES {
        return Ok(());
    }
    let value = format!("a text of {} bytes", text.len());
    Err(OverrideError::invalid("key", value, format!("at most {MAX_KEY_BYTES} bytes")))
}

/// Returns the field of an override in the hash of all: the policy, and the key.
pub(super) fn field(policy: &str, key: Option<&Key>) -> String {
    match key {
        Some(key) => format!("{policy}:{}", key.display_revealed()),
        None => policy.to_owned(),
    }
}

/// Returns the field of an override, by its key or by the digest of the key. The [registry](Registry) need not
/// have its policy.
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

/// Returns the digest of a key, such as `#1f2e3d4c`: the one in log lines.
pub(crate) fn digest(key: &Key) -> String {
    let text = format!("{key:?}");
    text.trim_start_matches("Key(").trim_end_matches(')').to_owned()
}

/// Returns the form of the text of a key that is printed for debugging: a digest.
pub(crate) fn redacted(key: &str) -> String {
    let digits = key.strip_prefix('#').unwrap_or_default();
    let is_digest = digits.len() == 8 && digits.bytes().all(|it| it.is_ascii_hexdigit());
    if is_digest { key.to_owned() } else { digest(&Key::from(key)) }
}

/// Prints no key in the clear.
impl fmt::Debug for Override {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let key = self.key.as_deref().map(redacted);
        let mut f = f.debug_struct("Override");
        f.field("policy", &self.policy).field("key", &key).field("kind", &self.kind);
        f.field("until", &self.until).field("version", &self.version).finish_non_exhaustive()
    }
}

/// Prints no key in the clear.
impl fmt::Debug for NewOverride {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let key = self.key.as_deref().map(redacted);
        let mut f = f.debug_struct("NewOverride");
        f.field("policy", &self.policy).field("key", &key).field("kind", &self.kind);
        f.field("until", &self.until).field("version", &self.version).finish_non_exhaustive()
    }
}

impl fmt::Display for OverrideKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Quota(quota) => write!(f, "{quota}"),
            Self::Off => f.write_str("off"),
            Self::Block => f.write_str("block"),
        }
    }
}
