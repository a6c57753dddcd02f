//! A named quota that can be replaced while the program runs, and its counters.

use std::{
    fmt,
    hash::{Hash, Hasher},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering, fence},
    },
};

#[cfg(feature = "metrics")]
use metrics::{Counter, Level, Metadata, Recorder};
use siphasher::sip::SipHasher13;

use super::key_watch::KeyWatch;
use crate::{
    error::Error,
    key::Key,
    policy::Charge,
    quota::{Algorithm, Quota},
    sync::Mutex,
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
    counters: Counters,
    key_watch: KeyWatch,
}

impl Policy {
    /// The longest name, in characters.
    pub const MAX_NAME_CHARS: usize = 64;

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

#[derive(Debug)]
pub(super) struct LiveQuota {
    /// Twice the number of changes, plus 1 during a change.
    sequence: AtomicU64,
    words: [AtomicU64; Quota::WORDS],
    /// Held during a change.
    writer: Mutex<()>,
}

impl LiveQuota {
    pub(super) fn new(quota: Quota) -> Self {
        let words = quota.to_words().map(AtomicU64::new);
        Self { sequence: AtomicU64::new(0), words, writer: Mutex::new(()) }
    }

    #[inline]
    pub(super) fn load(&self) -> Quota {
        loop {
            let before = self.sequence.load(Ordering::Acquire);
            let words = self.words.each_ref().map(|word| word.load(Ordering::Relaxed));
            // The words are read before the sequence is read again.
            fence(Ordering::Acquire);
            if before.is_multiple_of(2) && before == self.sequence.load(Ordering::Relaxed) {
                return Quota::from_words(words);
            }
            self.wait_for_writer();
        }
    }

    pub(super) fn store(&self, quota: Quota) {
        let _writing = self.writer.lock();
        let sequence = self.sequence.load(Ordering::Relaxed);
        self.sequence.store(sequence + 1, Ordering::Relaxed);
        // The sequence is odd before the first word changes.
        fence(Ordering::Release);
        for (word, new) in self.words.iter().zip(quota.to_words()) {
            word.store(new, Ordering::Relaxed);
        }
        self.sequence.store(sequence + 2, Ordering::Release);
    }

    /// Returns the number of changes.
    pub(super) fn version(&self) -> u64 {
        self.sequence.load(Ordering::Acquire) / 2
    }

    /// Blocks until the current change is complete. Spinning would waste time while the writing
    /// thread is not scheduled.
    #[cold]
    fn wait_for_writer(&self) {
        drop(self.writer.lock());
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
