//! A named quota that can be replaced while the program runs, and its counters.

use std::{
    fmt,
    hash::{Hash, Hasher},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::SystemTime,
};

#[cfg(feature = "metrics")]
use metrics::{Counter, Level, Metadata, Recorder};
use siphasher::sip::SipHasher13;

use super::{
    key_quotas::{KeyQuota, KeyQuotas},
    key_watch::KeyWatch,
    seq_lock::SeqLock,
};
use crate::{
    error::Error,
    key::Key,
    policy::Charge,
    quota::{Algorithm, Quota},
};

/// A named [`Quota`] that can be replaced while it is in use.
///
/// A policy is a handle, and clones share the quota. Two policies with the same name share the
/// standings of their keys, so give each limit a name of its own.
///
/// ```
/// use plimsoll::{Policy, Quota};
///
/// let search = Policy::new("search", Quota::per_minute(100))?;
/// search.set_quota(Quota::per_minute(200)); // for all clones; spent units stay spent
/// assert_eq!(search.quota().limit(), 200);
/// # Ok::<(), plimsoll::Error>(())
/// ```
#[derive(Clone)]
pub struct Policy(Arc<PolicyState>);

struct PolicyState {
    name: Box<str>,
    id: u64,
    unit: Option<Box<str>>,
    quota: LiveQuota,
    key_quotas: KeyQuotas,
    counters: Counters,
    key_watch: KeyWatch,
}

impl Policy {
    /// The longest name, in characters.
    pub const MAX_NAME_CHARS: usize = 64;

    /// The maximum number of keys with a [quota of their own](Self::set_key_quota).
    pub const MAX_KEY_QUOTAS: usize = KeyQuotas::MAX;

    /// Creates a policy with this name and quota: a [`Quota`], or its text.
    ///
    /// ```
    /// use plimsoll::{Policy, Quota};
    ///
    /// let search = Policy::new("search", "100/min")?;
    /// assert_eq!(search.quota(), Quota::per_minute(100));
    ///
    /// let error = Policy::new("login", "5/min token_bucket(5)").unwrap_err();
    /// assert!(error.to_string().contains("did you mean \"token-bucket(5)\"?"));
    /// # Ok::<(), plimsoll::Error>(())
    /// ```
    ///
    /// A name has 1 to 64 characters of `a-z`, `0-9`, `-`, `_` and `.`, and begins with a letter
    /// or a digit. It is shown in headers, problem documents and metrics.
    ///
    /// # Errors
    ///
    /// Returns an error if the name does not have this form, or if the text is not that of a
    /// [quota](Quota#impl-FromStr-for-Quota).
    pub fn new<Q>(name: &str, quota: Q) -> Result<Self, Error>
    where
        Q: TryInto<Quota>,
        Error: From<Q::Error>,
    {
        let name = parse_name("policy name", name)?;
        let quota = quota.try_into()?;
        let id = id(&name);
        Ok(Self(Arc::new(PolicyState {
            id,
            unit: None,
            quota: LiveQuota::new(quota),
            key_quotas: KeyQuotas::default(),
            counters: Counters::new(&name),
            key_watch: KeyWatch::default(),
            name,
        })))
    }

    /// Sets the name of the unit: the parameter `qu` of the `RateLimit-Policy` header. The default
    /// is requests. The draft registers `content-bytes` and `concurrent-requests`.
    ///
    /// This creates a new handle that shares nothing with existing clones, so call it before the
    /// policy is cloned.
    ///
    /// # Errors
    ///
    /// Returns an error if the unit does not have the form of a policy name.
    pub fn with_unit(self, unit: &str) -> Result<Self, Error> {
        let unit = Some(parse_name("quota unit", unit)?);
        Ok(Self(Arc::new(PolicyState {
            name: self.0.name.clone(),
            id: self.0.id,
            unit,
            quota: LiveQuota::new(self.quota()),
            key_quotas: self.0.key_quotas.copy(),
            counters: Counters::new(self.name()),
            key_watch: KeyWatch::default(),
        })))
    }

    /// Returns the name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.0.name
    }

    /// Returns the name of the unit, or `None` if the policy counts requests.
    #[must_use]
    pub fn unit(&self) -> Option<&str> {
        self.0.unit.as_deref()
    }

    /// Returns the quota that is in force.
    #[must_use]
    #[inline]
    pub fn quota(&self) -> Quota {
        self.0.quota.load()
    }

    /// Returns how many times the quota has been replaced.
    #[must_use]
    pub fn version(&self) -> u64 {
        self.0.quota.version()
    }

    /// Replaces the quota, at once and for all clones of this handle.
    ///
    /// - Units that a key has spent stay spent, and expire no later than under the old quota.
    /// - A new limit applies at once.
    /// - After a change of the window, the new bound holds once one new window has passed.
    /// - After a change of the [`Algorithm`], all keys start with no units spent.
    pub fn set_quota(&self, quota: Quota) {
        self.0.quota.store(quota);
    }

    /// Replaces the quota for one key until a given time, at once and for all clones of this handle: for
    /// a customer who needs more for a day, or a client that should get less.
    ///
    /// - It wins over [`Charge::with_quota`], and so over [`Rule::quota`](crate::Rule::quota).
    /// - It ends by itself. A time in the past ends the quota that the key has.
    /// - What the key has spent stays spent when its quota begins, changes or ends, as with
    ///   [`set_quota`](Self::set_quota).
    /// - It applies in this process. Call this in each instance of a service.
    /// - If the wall clock is set or the machine is suspended after the call, the quota still lasts for
    ///   the time that was left at the call.
    ///
    /// ```
    /// use std::time::{Duration, SystemTime};
    ///
    /// use plimsoll::{Policy, Quota};
    ///
    /// let api = Policy::new("api", Quota::per_minute(100))?;
    /// let tomorrow = SystemTime::now() + Duration::from_secs(86_400);
    /// api.set_key_quota("acme", Quota::per_minute(5_000), tomorrow)?;
    /// assert_eq!(api.charge("acme", 1).quota().limit(), 5_000);
    /// assert_eq!(api.charge("alice", 1).quota().limit(), 100);
    ///
    /// let listed = api.key_quotas();
    /// assert_eq!((listed.len(), listed[0].until()), (1, tomorrow));
    /// assert!(api.remove_key_quota("acme"));
    /// assert_eq!(api.charge("acme", 1).quota().limit(), 100);
    /// # Ok::<(), plimsoll::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// Returns an error if [`MAX_KEY_QUOTAS`](Self::MAX_KEY_QUOTAS) other keys have a quota already.
    pub fn set_key_quota(
        &self,
        key: impl Into<Key>,
        quota: Quota,
        until: SystemTime,
    ) -> Result<(), Error> {
        self.0.key_quotas.set(KeyQuota::new(key.into(), quota, until))
    }

    /// Removes the [quota of a key](Self::set_key_quota). Returns whether the key had one.
    pub fn remove_key_quota(&self, key: impl Into<Key>) -> bool {
        self.0.key_quotas.remove(&key.into())
    }

    /// Returns the [quotas of keys](Self::set_key_quota) that are in force, in the order of the keys.
    #[must_use]
    pub fn key_quotas(&self) -> Vec<KeyQuota> {
        self.0.key_quotas.list()
    }

    /// Returns the quota that this key has of its own.
    #[inline]
    pub(super) fn key_quota(&self, key: &Key) -> Option<Quota> {
        self.0.key_quotas.of(key)
    }

    /// Creates a [`Charge`] of `cost` units to `key`: one line of a check. A cost of 0 reads the
    /// standing of the key and spends nothing.
    #[inline]
    pub fn charge(&self, key: impl Into<Key>, cost: u64) -> Charge<'_> {
        Charge::new(self, key.into(), cost)
    }

    /// Returns the name, and the quota with its algorithm: `api 100/min sliding-log`.
    pub(crate) fn description(&self) -> String {
        let quota = self.quota();
        let algorithm = quota.algorithm();
        // The text of a quota leaves the default algorithm out.
        if algorithm == Algorithm::default() {
            return format!("{} {quota} {algorithm}", self.name());
        }
        format!("{} {quota}", self.name())
    }

    pub(crate) fn counters(&self) -> &Counters {
        &self.0.counters
    }

    /// Returns the watch over the keys of the first charges.
    #[inline]
    pub(crate) fn key_watch(&self) -> &KeyWatch {
        &self.0.key_watch
    }

    /// Returns a hash of the name, which is the same in every process.
    pub(crate) fn id(&self) -> u64 {
        self.0.id
    }
}

impl PartialEq for Policy {
    /// Compares the names: policies with the same name share their standings.
    #[inline]
    fn eq(&self, other: &Self) -> bool {
        self.0.id == other.0.id && self.0.name == other.0.name
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

/// Checks a name. Names are written into quoted header strings and store keys without escaping, and
/// no two differ only by case.
fn parse_name(field: &str, name: &str) -> Result<Box<str>, Error> {
    let allowed = |byte: u8| matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'-' | b'_' | b'.');
    let valid_start = name.bytes().next().is_some_and(|first| first.is_ascii_alphanumeric());
    if valid_start && name.len() <= Policy::MAX_NAME_CHARS && name.bytes().all(allowed) {
        return Ok(name.into());
    }
    let shown: String = name.chars().take(2 * Policy::MAX_NAME_CHARS).collect();
    let allowed = "1 to 64 characters of a-z, 0-9, '-', '_', '.', the first a letter or a digit";
    Err(Error::invalid(field, shown, allowed))
}

fn id(name: &str) -> u64 {
    let mut hasher = SipHasher13::new();
    name.hash(&mut hasher);
    hasher.finish()
}

/// A quota that is read without a lock while it is replaced.
#[derive(Debug)]
struct LiveQuota {
    lock: SeqLock<()>,
    words: [AtomicU64; Quota::WORDS],
}

impl LiveQuota {
    fn new(quota: Quota) -> Self {
        Self { lock: SeqLock::default(), words: quota.to_words().map(AtomicU64::new) }
    }

    #[inline]
    fn load(&self) -> Quota {
        let load = || self.words.each_ref().map(|word| word.load(Ordering::Relaxed));
        Quota::from_words(self.lock.read(load))
    }

    fn store(&self, quota: Quota) {
        self.lock.writer().change(|()| {
            for (word, new) in self.words.iter().zip(quota.to_words()) {
                word.store(new, Ordering::Relaxed);
            }
        });
    }

    /// Returns the number of changes.
    fn version(&self) -> u64 {
        self.lock.changes()
    }
}

/// The names of the counters of one policy, made once so that counting does not allocate. Without the
/// feature `metrics` there are none.
#[derive(Debug)]
pub(crate) struct Counters(#[cfg(feature = "metrics")] [metrics::Key; 5]);

#[cfg(feature = "metrics")]
impl Counters {
    /// The values of the label `outcome`: the names of [`OutcomeKind`](crate::OutcomeKind), in the order of
    /// its variants.
    const OUTCOMES: [&str; 5] = ["allowed", "denied", "not_charged", "would_allow", "would_deny"];

    /// Creates the names for the policy `name`, and [starts](Self::start) its counters.
    pub(crate) fn new(name: &str) -> Self {
        let counters = Self(Self::OUTCOMES.map(|outcome| {
            let labels = [("policy", name.to_owned()), ("outcome", outcome.to_owned())];
            metrics::Key::from_parts("plimsoll_decisions_total", &labels)
        }));
        counters.start();
        counters
    }

    /// Starts the counters at 0, unless they exist or there is no recorder yet. Without a series at 0, a
    /// query cannot tell a policy that is never used from one that does not exist.
    pub(crate) fn start(&self) {
        metrics::with_recorder(|recorder| {
            let kinds = 0..Self::OUTCOMES.len();
            kinds.for_each(|kind| self.register(recorder, kind).increment(0));
        });
    }

    /// Returns the counter of an outcome, by the number of its kind.
    #[inline]
    pub(crate) fn register(&self, recorder: &dyn Recorder, kind: usize) -> Counter {
        static METADATA: Metadata<'static> =
            Metadata::new("plimsoll", Level::INFO, Some("plimsoll"));
        recorder.register_counter(&self.0[kind], &METADATA)
    }
}

#[cfg(not(feature = "metrics"))]
impl Counters {
    pub(crate) fn new(_: &str) -> Self {
        Self()
    }

    pub(crate) fn start(&self) {}
}
