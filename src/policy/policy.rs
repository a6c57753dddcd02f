//! A named quota that can change while the program runs.

use std::{
    fmt,
    hash::{Hash, Hasher},
    sync::Arc,
};

use siphasher::sip::SipHasher13;

use super::live::Live;
use crate::{error::Error, key::Key, policy::Charge, quota::Quota, telemetry::Counters};

/// A named [`Quota`]: a handle whose quota can be swapped while it is in use.
///
/// Clones share the quota. Two policies of one name share the standings of their keys, so give
/// each limit a name of its own.
///
/// ```
/// use tollgate::{Policy, Quota};
///
/// let search = Policy::new("search", Quota::per_minute(100))?;
/// search.set_quota(Quota::per_minute(200)); // at once, for all clones; spent units stay spent
/// assert_eq!(search.quota().limit(), 200);
/// # Ok::<(), tollgate::Error>(())
/// ```
#[derive(Clone)]
pub struct Policy(Arc<Shared>);

struct Shared {
    name: Box<str>,
    id: u64,
    unit: Option<Box<str>>,
    live: Live,
    counters: Counters,
}

impl Policy {
    /// The longest name, in characters.
    pub const MAX_NAME: usize = 64;

    /// A policy of this name and quota.
    ///
    /// A name has 1 to 64 characters of `a-z`, `0-9`, `-`, `_` and `.`, and begins with a letter
    /// or a digit. It is shown in headers, problem documents and metrics.
    ///
    /// # Errors
    ///
    /// If the name is not of this form.
    pub fn new(name: &str, quota: Quota) -> Result<Self, Error> {
        let name = parse_name("policy name", name)?;
        let id = id(&name);
        Ok(Self(Arc::new(Shared {
            id,
            unit: None,
            live: Live::new(quota),
            counters: Counters::new(&name),
            name,
        })))
    }

    /// The same policy, saying what its units are: `qu` in the `RateLimit-Policy` header. Without
    /// it they are requests. The draft registers `content-bytes` and `concurrent-requests`.
    ///
    /// Set it before the policy is shared: it makes a new handle.
    ///
    /// # Errors
    ///
    /// If the unit is not of the form of a policy name.
    pub fn with_unit(self, unit: &str) -> Result<Self, Error> {
        let unit = Some(parse_name("quota unit", unit)?);
        Ok(Self(Arc::new(Shared {
            name: self.0.name.clone(),
            id: self.0.id,
            unit,
            live: Live::new(self.quota()),
            counters: Counters::new(self.name()),
        })))
    }

    /// The name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.0.name
    }

    /// What is counted, if not requests.
    #[must_use]
    pub fn unit(&self) -> Option<&str> {
        self.0.unit.as_deref()
    }

    /// The quota in force.
    #[must_use]
    #[inline]
    pub fn quota(&self) -> Quota {
        self.0.live.load()
    }

    /// How often the quota has been changed.
    #[must_use]
    pub fn version(&self) -> u64 {
        self.0.live.version()
    }

    /// Puts another quota in force, at once and for all clones of this handle.
    ///
    /// Units that a key has spent stay spent, and leave no later than they would have. Another
    /// limit acts at once; after another window the new bound holds once one new window has
    /// passed. Another [`Algorithm`](crate::Algorithm) starts afresh.
    pub fn set_quota(&self, quota: Quota) {
        self.0.live.store(quota);
    }

    /// A charge of `cost` units to `key`: one line of a check. A cost of 0 reads and spends
    /// nothing.
    #[inline]
    pub fn charge(&self, key: impl Into<Key>, cost: u64) -> Charge<'_> {
        Charge::new(self, key.into(), cost)
    }

    #[allow(dead_code, reason = "asked for only where decisions are counted")]
    pub(crate) fn counters(&self) -> &Counters {
        &self.0.counters
    }

    /// A number made from the name, the same in every process.
    pub(crate) fn id(&self) -> u64 {
        self.0.id
    }
}

impl PartialEq for Policy {
    /// Whether the standings are the same: policies are told apart by name.
    fn eq(&self, other: &Self) -> bool {
        self.0.name == other.0.name
    }
}

impl Eq for Policy {}

impl fmt::Debug for Policy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Policy")
            .field("name", &self.0.name)
            .field("quota", &format_args!("{}", self.quota()))
            .field("version", &self.version())
            .finish()
    }
}

/// Names go into quoted header strings and store keys as they are, and none differ only by case.
fn parse_name(field: &str, name: &str) -> Result<Box<str>, Error> {
    let allowed = |byte: u8| matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'-' | b'_' | b'.');
    let begins_well = name.bytes().next().is_some_and(|first| first.is_ascii_alphanumeric());
    if begins_well && name.len() <= Policy::MAX_NAME && name.bytes().all(allowed) {
        return Ok(name.into());
    }
    let shown: String = name.chars().take(2 * Policy::MAX_NAME).collect();
    let allowed = "1 to 64 characters of a-z, 0-9, '-', '_', '.', the first a letter or a digit";
    Err(Error::invalid(field, shown, allowed))
}

fn id(name: &str) -> u64 {
    let mut hasher = SipHasher13::new();
    name.hash(&mut hasher);
    hasher.finish()
}
