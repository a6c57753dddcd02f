//! The number of units per window, and the algorithm that counts them.

use std::{fmt, time::Duration};

use super::{UnitsReturn, lease};
use crate::{clock::Timestamp, error::Error, quota::Algorithm};

/// A limit of units per window, and the [`Algorithm`] that counts them.
///
/// Every constructor checks these ranges, so a quota is always valid.
///
/// | value | minimum | maximum |
/// |---|---|---|
/// | limit | 1 unit | [`MAX_LIMIT`](Self::MAX_LIMIT) = 10^12 units |
/// | limit of `SlidingLog` and `SlidingBuckets` | 1 unit | [`MAX_LOGGED`](Self::MAX_LOGGED) = 2^31 units |
/// | window | 1 ms | 400 days, in whole microseconds |
/// | burst of a `TokenBucket` | 1 unit | 10^12 units, and at most the units that refill in 400 days |
/// | n of `SlidingBuckets(n)` | 1 | 1000 |
/// | lease | 1 ms | a tenth of the window and 1 h, in whole milliseconds; see [`leased`](Self::leased) |
///
/// With the feature `serde`, a quota is serialized as its text, such as `100/min`.
///
/// ```
/// use plimsoll::{Algorithm, Quota};
///
/// let quota = Quota::per_minute(100); // an exact sliding log of 100 units in any 60 s
/// assert_eq!(quota, "100/min".parse()?);
///
/// let smooth = Quota::per_second(50).with_algorithm(Algorithm::TokenBucket { burst: 20 })?;
/// assert_eq!(smooth, "50/s token-bucket(20)".parse()?);
/// # Ok::<(), plimsoll::Error>(())
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Quota {
    /// The limit, and above its 40 bits the lease in milliseconds, 0 if the quota is not leased.
    limit_and_lease: u64,
    window: u64,
    /// The algorithm's parameter and number: a quota travels with every charge, so it is small.
    algorithm: u64,
}

impl Quota {
    /// The highest limit, in units: 10^12.
    pub const MAX_LIMIT: u64 = 1_000_000_000_000;
    /// The highest limit of the algorithms that keep a log, in units: 2^31.
    pub const MAX_LOGGED: u64 = 1 << 31;
    /// The shortest window: 1 ms.
    pub const MIN_WINDOW: Duration = Duration::from_millis(1);
    /// The longest window: 400 days.
    pub const MAX_WINDOW: Duration = Duration::from_secs(400 * 86_400);
    /// The shortest window of a [leased](Self::leased) quota: 500 ms.
    pub const MIN_LEASED_WINDOW: Duration = Duration::from_millis(500);
    /// The longest [lease](Self::leased): 1 h.
    pub const MAX_LEASE: Duration = Duration::from_secs(3_600);

    /// The bits of the highest limit.
    const LIMIT_BITS: u32 = 40;
    const LIMIT_MASK: u64 = (1 << Self::LIMIT_BITS) - 1;

    /// Creates a quota of `limit` units in any `window`, counted by the exact
    /// [`Algorithm::SlidingLog`].
    ///
    /// # Errors
    ///
    /// Returns an error if the limit or the window is out of range. A limit above [`MAX_LOGGED`](Self::MAX_LOGGED)
    /// needs another algorithm: see [`new_with_algorithm`](Self::new_with_algorithm).
    pub fn new(limit: u64, window: Duration) -> Result<Self, Error> {
        Self::new_with_algorithm(limit, window, Algorithm::SlidingLog)
    }

    /// Creates a quota of `limit` units per `window`, counted by `algorithm`.
    ///
    /// # Errors
    ///
    /// Returns an error if a value is out of range.
    pub fn new_with_algorithm(
        limit: u64,
        window: Duration,
        algorithm: Algorithm,
    ) -> Result<Self, Error> {
        if window < Self::MIN_WINDOW || window > Self::MAX_WINDOW {
            return Err(Error::invalid("window", window, "1 ms to 400 days"));
        }
        if !window.subsec_nanos().is_multiple_of(1000) {
            return Err(Error::invalid("window", window, "a whole number of microseconds"));
        }
        if limit == 0 || limit > Self::MAX_LIMIT {
            return Err(Error::invalid("limit", limit, "1 to 1000000000000"));
        }
        let quota = Self::packed(limit, window.as_micros() as u64, algorithm);
        algorithm.validate(limit, quota.window)?;
        Ok(quota)
    }

    /// Creates a quota of `limit` units per second.
    ///
    /// # Panics
    ///
    /// Panics if the limit is 0 or above [`MAX_LOGGED`](Self::MAX_LOGGED); in a constant this is an error
    /// at compile time.
    #[must_use]
    pub const fn per_second(limit: u64) -> Self {
        Self::logged(limit, 1)
    }

    /// Creates a quota of `limit` units per minute.
    ///
    /// # Panics
    ///
    /// Panics like [`per_second`](Self::per_second).
    #[must_use]
    pub const fn per_minute(limit: u64) -> Self {
        Self::logged(limit, 60)
    }

    /// Creates a quota of `limit` units per hour.
    ///
    /// # Panics
    ///
    /// Panics like [`per_second`](Self::per_second).
    #[must_use]
    pub const fn per_hour(limit: u64) -> Self {
        Self::logged(limit, 3_600)
    }

    /// Creates a quota of `limit` units per day of 24 hours.
    ///
    /// # Panics
    ///
    /// Panics like [`per_second`](Self::per_second).
    #[must_use]
    pub const fn per_day(limit: u64) -> Self {
        Self::logged(limit, 86_400)
    }

    const fn logged(limit: u64, seconds: u64) -> Self {
        assert!(limit > 0, "a limit of 0 units: allowed is 1 to 2147483648");
        assert!(limit <= Self::MAX_LOGGED, "a sliding log counts at most 2147483648 units");
        Self::packed(limit, seconds * 1_000_000, Algorithm::SlidingLog)
    }

    /// Returns the same limit and window, counted by another algorithm.
    ///
    /// # Errors
    ///
    /// Returns an error if the algorithm cannot count this quota, or a value of its own is out of range.
    pub fn with_algorithm(self, algorithm: Algorithm) -> Result<Self, Error> {
        let quota = Self::new_with_algorithm(self.limit(), self.window(), algorithm)?;
        match self.lease() {
            Some(lease) => quota.leased(lease),
            None => Ok(quota),
        }
    }

    /// Returns the same quota with a lease. A process may then take units of a key from a shared
    /// store in bulk, and spend them by itself for the time `lease`.
    ///
    /// A lease saves requests: a process sends the store one request for many checks of a busy key.
    /// The bound of the [`Algorithm`] stays the same in every window. In return, a shared store
    /// counts each unit for longer, or allows a lower burst: see [`counted`](Self::counted). An
    /// embedded store ignores the lease. Units are leased only from a store that [counts
    /// leases](crate::store::Store::counts_leases). The [guide](crate::guide::leases) says when to
    /// lease, and for how long.
    ///
    /// All processes that share a store should use the same lease. The text of a leased quota is such
    /// as `60000/min leased(500ms)`.
    ///
    /// ```
    /// use std::time::Duration;
    ///
    /// use plimsoll::Quota;
    ///
    /// let quota = Quota::per_minute(60_000).leased(Duration::from_millis(500))?;
    /// assert_eq!(quota, "60000/min leased(500ms)".parse()?);
    ///
    /// let error = quota.leased(Duration::from_secs(10)).unwrap_err();
    /// let allowed = "allowed is 1 ms to 6s for 60000/min (a tenth of the window)";
    /// assert_eq!(error.to_string(), format!("lease is 10s, {allowed}"));
    /// # Ok::<(), plimsoll::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// Returns an error that names the allowed range if
    ///
    /// - the lease is not a whole number of milliseconds, or 0;
    /// - it is longer than a tenth of the window, or than [`MAX_LEASE`](Self::MAX_LEASE);
    /// - the window is shorter than [`MIN_LEASED_WINDOW`](Self::MIN_LEASED_WINDOW), or window and
    ///   lease together are longer than [`MAX_WINDOW`](Self::MAX_WINDOW);
    /// - a token bucket refills its whole burst, or more, during the lease.
    pub fn leased(self, lease: Duration) -> Result<Self, Error> {
        lease::validate(lease, &self.with_lease(0))?;
        Ok(self.with_lease(lease.as_millis() as u64))
    }

    /// Returns the lease, if the quota is [leased](Self::leased).
    #[must_use]
    pub const fn lease(&self) -> Option<Duration> {
        match self.lease_millis() {
            0 => None,
            millis => Some(Duration::from_millis(millis)),
        }
    }

    /// Returns the quota by which a shared store counts this one. It is the same, unless this quota is
    /// [leased](Self::leased) for a time `l`:
    ///
    /// | algorithm | counted |
    /// |---|---|
    /// | `SlidingLog`, `SlidingBuckets` | over `window + l` |
    /// | `TokenBucket` | with a burst of `burst - ceil(limit * l / window)` |
    /// | `SlidingCounter`, `FixedWindow` | as they are: a lease ends with the period of its units |
    ///
    /// A unit that the store counted at `t` is used until `t + l`. So the units that are used in any
    /// window were counted in a time that is longer by `l`, and in that time the quota returned here
    /// allows no more than the bound of this quota. It has no lease.
    ///
    /// [`RedisStore`](crate::RedisStore) counts all checks of a leased quota so, whether they lease
    /// units or not. A [`Store`](crate::store::Store) of your own that several processes share does the
    /// same, and then returns true from [`counts_leases`](crate::store::Store::counts_leases).
    ///
    /// ```
    /// use plimsoll::Quota;
    ///
    /// let quota: Quota = "60000/min leased(500ms)".parse()?;
    /// assert_eq!(quota.counted(), "60000/60500ms".parse()?);
    ///
    /// let smooth: Quota = "50/s token-bucket(20) leased(20ms)".parse()?;
    /// assert_eq!(smooth.counted(), "50/s token-bucket(19)".parse()?);
    /// # Ok::<(), plimsoll::Error>(())
    /// ```
    #[must_use]
    #[inline]
    pub fn counted(&self) -> Self {
        match self.lease_millis() {
            0 => *self,
            _ => lease::counted(self.with_lease(0), self.lease_micros()),
        }
    }

    /// Returns for how many microseconds units may be used that a shared store granted at `granted`,
    /// by the time of the store. Under a fixed window and a sliding counter they are used in the
    /// period that counts them.
    #[allow(dead_code, reason = "used by the lease layer")]
    pub(crate) fn lease_micros_at(&self, granted: Timestamp) -> u64 {
        match self.algorithm().units_return() {
            UnitsReturn::ByPeriod => {
                let rest = self.window - granted.as_micros() % self.window;
                rest.min(self.lease_micros())
            }
            UnitsReturn::AfterWindow | UnitsReturn::AtRate { .. } => self.lease_micros(),
        }
    }

    /// Returns the number of units per window.
    #[must_use]
    #[inline]
    pub const fn limit(&self) -> u64 {
        self.limit_and_lease & Self::LIMIT_MASK
    }

    /// Returns the window.
    #[must_use]
    pub const fn window(&self) -> Duration {
        Duration::from_micros(self.window)
    }

    /// Returns the algorithm that counts the units.
    #[must_use]
    pub const fn algorithm(&self) -> Algorithm {
        Algorithm::from_parts(self.algorithm as u8, self.algorithm >> 8)
    }

    /// Returns the number of the algorithm.
    pub(crate) const fn algorithm_number(&self) -> u8 {
        self.algorithm as u8
    }

    /// Returns the number of units that a key can spend at once when it has spent nothing: the burst of a token
    /// bucket, the limit elsewhere.
    #[must_use]
    pub const fn capacity(&self) -> u64 {
        match self.algorithm().units_return() {
            UnitsReturn::AtRate { burst } => burst,
            UnitsReturn::AfterWindow | UnitsReturn::ByPeriod => self.limit(),
        }
    }

    pub(crate) const fn window_micros(&self) -> u64 {
        self.window
    }

    const fn lease_millis(&self) -> u64 {
        self.limit_and_lease >> Self::LIMIT_BITS
    }

    const fn lease_micros(&self) -> u64 {
        self.lease_millis() * 1000
    }

    const fn with_lease(self, millis: u64) -> Self {
        Self { limit_and_lease: self.limit() | millis << Self::LIMIT_BITS, ..self }
    }

    pub(crate) const WORDS: usize = 3;

    /// Returns one of `shares` equal shares of the limit and of the burst, each at least 1 unit.
    pub(crate) fn share(self, shares: u32) -> Self {
        if shares == 1 {
            return self;
        }
        let share = |units: u64| (units / u64::from(shares)).max(1);
        let algorithm = self.algorithm().map_burst(share);
        Self::packed(share(self.limit()), self.window, algorithm).with_lease(self.lease_millis())
    }

    pub(super) const fn packed(limit: u64, window: u64, algorithm: Algorithm) -> Self {
        let algorithm = algorithm.parameter() << 8 | algorithm.number() as u64;
        Self { limit_and_lease: limit, window, algorithm }
    }

    /// Returns the quota as words, which fit atomics.
    pub(crate) const fn to_words(self) -> [u64; Self::WORDS] {
        [self.limit_and_lease, self.window, self.algorithm]
    }

    /// Returns the quota of [`to_words`](Self::to_words).
    #[inline]
    pub(crate) const fn from_words(
        [limit_and_lease, window, algorithm]: [u64; Self::WORDS],
    ) -> Self {
        Self { limit_and_lease, window, algorithm }
    }
}

impl fmt::Debug for Quota {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Quota({self})")
    }
}
