//! An [override](Override), and the effect of a change.

use std::{collections::BTreeMap, fmt, mem::discriminant, ops::RangeInclusive, time::SystemTime};

use plimsoll::{Key, Quota};
use serde::{Deserialize, Serialize};

use super::OverrideError;
use crate::{Registered, Registry, time::optional_millis};

/// A change of a [policy](plimsoll::Policy), or of one key under it, that an operator has made.
///
/// As JSON, times are milliseconds since the Unix epoch.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Override {
    /// The name of the policy.
    pub policy: String,
    /// The key that it applies to, or `None` if it applies to the policy. To set an override, the key is written as
    /// the [`KeyType`](crate::KeyType) of the policy says. In the lists of [`Overrides`](super::Overrides), it is
    /// a digest such as `#1f2e3d4c`, which is also in log lines, unless
    /// [`show_keys`](super::Overrides::show_keys) was called.
    pub key: Option<String>,
    /// The change that it makes.
    pub kind: OverrideKind,
    /// The time at which it ends, or `None` if it applies until it is removed.
    #[serde(with = "optional_millis")]
    pub until: Option<SystemTime>,
    /// The person or program that has set it. From 1 to 128 bytes.
    pub by: String,
    /// The reason for the change. From 1 to 1,000 bytes.
    pub reason: String,
    /// The version at which it was set, or 0 before. Versions only grow: a version is the time in microseconds, or
    /// more.
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

/// The effect of a change of an [`Override`].
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Change {
    /// The override before.
    pub before: Option<Override>,
    /// The override after.
    pub after: Option<Override>,
    /// The [version](Override::version) of the change.
    pub version: u64,
    /// The limit that was in force before: a [quota](Quota) such as `100/min`, `off`, or `block`. `None` if
    /// this process does not have the policy.
    pub in_force_before: Option<String>,
    /// The limit that is in force after, in the form of [`in_force_before`](Self::in_force_before).
    pub in_force_after: Option<String>,
    /// The reason for which this instance could not apply the change yet. It is stored, other instances apply
    /// it, and this one tries again each second.
    pub not_applied: Option<String>,
}

/// The overrides by their fields.
pub(super) type Entries = BTreeMap<String, Override>;

impl Override {
    /// Creates the override of a policy, without an end. Set its fields to change one key, or to end it.
    #[must_use]
    pub fn new(policy: &str, kind: OverrideKind, by: &str, reason: &str) -> Self {
        Self {
            policy: policy.to_owned(),
            key: None,
            kind,
            until: None,
            by: by.to_owned(),
            reason: reason.to_owned(),
            version: 0,
        }
    }

    /// Checks the override, and returns the policy with the key that it is about.
    pub(super) fn check(
        &self,
        registry: &Registry,
    ) -> Result<(Registered, Option<Key>), OverrideError> {
        check_author(&self.by, &self.reason)?;
        let (policy, key) = find(registry, &self.policy, self.key.as_deref())?;
        let allowed = match self.kind {
            OverrideKind::Off if key.is_some() => "a quota or a block; off is for a whole policy",
            OverrideKind::Block if key.is_none() => "a quota or off; only a key is blocked",
            OverrideKind::Quota(quota) => {
                return check_algorithm(&policy, quota).map(|()| (policy, key));
            }
            _ => return Ok((policy, key)),
        };
        Err(OverrideError::invalid("kind", self.kind.to_string(), allowed))
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
    let name = configured.algorithm().name();
    let allowed = format!(
        "a quota that counts by {name}, such as {configured}: under another algorithm all keys would start \
         with no units spent"
    );
    Err(OverrideError::invalid("quota", value, allowed))
}

/// Checks who asks for a change, and why.
pub(super) fn check_author(by: &str, reason: &str) -> Result<(), OverrideError> {
    check_bytes("by", by.trim(), 1..=128)?;
    check_bytes("reason", reason.trim(), 1..=1_000)
}

/// Checks that a text is not too long for a key.
pub(crate) fn check_length(text: &str) -> Result<(), OverrideError> {
    check_bytes("key", text, 0..=1_024)
}

fn check_bytes(
    field: &'static str,
    text: &str,
    allowed: RangeInclusive<usize>,
) -> Result<(), OverrideError> {
    if allowed.contains(&text.len()) {
        return Ok(());
    }
    let value = match text.len() {
        0 => "empty".to_owned(),
        bytes => format!("a text of {bytes} bytes"),
    };
    let allowed = format!("{} to {} bytes", allowed.start(), allowed.end());
    Err(OverrideError::invalid(field, value, allowed))
}

/// Returns the policy of this name, and the key that the text stands for.
pub(crate) fn find(
    registry: &Registry,
    policy: &str,
    key: Option<&str>,
) -> Result<(Registered, Option<Key>), OverrideError> {
    let registered = registry.get(policy).ok_or_else(|| OverrideError::UnknownPolicy {
        policy: policy.chars().take(100).collect(),
        known: registry.policies().iter().map(|it| it.policy().name().into()).collect(),
    })?;
    let Some(text) = key else { return Ok((registered, None)) };
    check_length(text)?;
    let key = registered.keys().parse(text).map_err(OverrideError::Key)?;
    Ok((registered, Some(key)))
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
    let error = match find(registry, policy, key) {
        Ok((_, key)) => return Ok(field(policy, key.as_ref())),
        Err(error) => error,
    };
    let named = entries.iter().find(|(_, entry)| match (&entry.key, key) {
        _ if entry.policy != policy => false,
        (Some(known), Some(key)) => known == key || shown_key(registry, policy, known) == key,
        (known, key) => known.is_none() && key.is_none(),
    });
    match (named, error) {
        (Some((field, _)), _) => Ok(field.clone()),
        // The digest of an override that has ended.
        (None, OverrideError::Key(error)) if error.is_digest() => Err(OverrideError::NotFound),
        (None, error) => Err(error),
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

impl fmt::Display for OverrideKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Quota(quota) => write!(f, "{quota}"),
            Self::Off => f.write_str("off"),
            Self::Block => f.write_str("block"),
        }
    }
}
