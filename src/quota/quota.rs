//! The number of units per window, and the algorithm that counts them.

use std::{fmt, time::Duration};

use super::algorithm::{self, Algorithm, UnitsReturn};
use crate::{clock::Timestamp, error::Error};

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
/// | expiry of a [concurrency limit](Self::concurrent) | 1 s | 400 days, in whole microseconds |
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
#[cfg_attr(
    feature = "serde",
    derive(serde::Serialize, serde::Deserialize),
    serde(try_from = "String", into = "String")
)]
pub struct Quota {
    /// The limit, and above its 40 bits the lease in milliseconds, 0 if the quota is not leased.
    limit_and_lease: u64,
    window: u64,
    /// The algorithm's parameter and number: a quota travels with every charge, so it is small.
    algorithm: u64,
}

impl Quota {
    /// The highest limit, in units: 10^12.
    pub const MAX_LIMIT: u64 = algorithm::MAX_LIMIT;
    /// The highest limit of the algorithms that keep a log, in units: 2^31.
    pub const MAX_LOGGED: u64 = algorithm::MAX_LOGGED;
    /// The shortest window: 1 ms.
    pub(crate) const MIN_WINDOW: Duration = Duration::from_millis(1);
    /// The longest window: 400 days.
    pub const MAX_WINDOW: Duration = algorithm::MAX_WINDOW;
    /// The shortest window of a [leased](Self::leased) quota: 500 ms.
    pub(crate) const MIN_LEASED_WINDOW: Duration = Duration::from_millis(500);
    /// The longest [lease](Self::leased): 1 h.
    pub(crate) const MAX_LEASE: Duration = Duration::from_secs(3_600);
    /// The shortest [expiry](Self::expires) of a concurrency limit: 1 s.
    pub(crate) const MIN_EXPIRY: Duration = Duration::from_secs(1);
    /// The expiry of a [concurrency limit](Self::concurrent) that names none, in seconds.
    const DEFAULT_EXPIRY_SECONDS: u64 = 30;

    /// The bits of the highest limit.
    const LIMIT_BITS: u32 = 40;
    const LIMIT_MASK: u64 = (1 << Self::LIMIT_BITS) - 1;

    /// Returns the quota as words, from which [`from_words`](Self::from_words) makes it again.
    pub(crate) fn into_words(self) -> [u64; 3] {
        [self.limit_and_lease, self.window, self.algorithm]
    }

    pub(crate) fn from_words([limit_and_lease, window, algorithm]: [u64; 3]) -> Self {
        Self { limit_and_lease, window, algorithm }
    }

    /// Creates a quota of `limit` units per `window`, counted by `algorithm`.
    ///
    /// # Errors
    ///
    /// Returns an error if a value is out of range.
    pub fn new(limit: u64, window: Duration, algorithm: Algorithm) -> Result<Self, Error> {
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

    /// Creates a concurrency limit: at most `limit` units of a key are in flight at the same time.
    ///
    /// A unit is in flight from the check that takes it until the work of the request has ended. A
    /// [`RateLimitLayer`](crate::RateLimitLayer) and a [`PaceLayer`](https://docs.rs/plimsoll-pace) release
    /// it when the body of the response has ended or is dropped, and a
    /// [`Reservation`](crate::limiter::Reservation) when it is dropped. Until then they renew the unit. A unit
    /// whose process has died is free again after the [expiry](Self::expires), which is 30 s unless
    /// another one is set.
    ///
    /// The store counts the units with [`Algorithm::SlidingLog`] over the expiry. The
    /// [guide](crate::guide::concurrency) describes the details.
    ///
    /// ```
    /// use std::time::Duration;
    ///
    /// use plimsoll::Quota;
    ///
    /// let quota = Quota::concurrent(20).expires(Duration::from_secs(60))?;
    /// assert_eq!(quota, "20 concurrent expires(60s)".parse()?);
    /// assert!(quota.is_concurrent());
    /// # Ok::<(), plimsoll::Error>(())
    /// ```
    ///
    /// # Panics
    ///
    /// Panics like [`per_second`](Self::per_second).
    #[must_use]
    pub const fn concurrent(limit: u64) -> Self {
        let Self { limit_and_lease, window, .. } =
            Self::logged(limit, Self::DEFAULT_EXPIRY_SECONDS);
        Self { limit_and_lease, window, algorithm: Self::CONCURRENT }
    }

    /// Returns the same concurrency limit with another expiry: the time after which a unit is free again
    /// if its process does not renew it.
    ///
    /// A process renews its units at a quarter of the expiry. So the expiry should be twice as long as the
    /// longest outage of the store, and the longest time for which a process stands still, that units are to
    /// outlast.
    ///
    /// # Errors
    ///
    /// Returns an error if the expiry is shorter than 1 s, longer than
    /// [`MAX_WINDOW`](Self::MAX_WINDOW) or not a whole number of microseconds, or if the quota is not a
    /// [concurrency limit](Self::concurrent).
    pub fn expires(self, expiry: Duration) -> Result<Self, Error> {
        if !self.is_concurrent() {
            return Err(Error::invalid("expiry", expiry, format_args!("none for {self}")));
        }
        if expiry < Self::MIN_EXPIRY || expiry > Self::MAX_WINDOW {
            return Err(Error::invalid("expiry", expiry, "1 s to 400 days"));
        }
        let quota = Self::new(self.limit(), expiry, Algorithm::SlidingLog)?;
        Ok(Self { algorithm: Self::CONCURRENT, ..quota })
    }

    /// Returns whether the quota is a [concurrency limit](Self::concurrent).
    #[must_use]
    pub const fn is_concurrent(&self) -> bool {
        self.algorithm == Self::CONCURRENT
    }

    /// The algorithm of a concurrency limit: a sliding log with a parameter, which no other has.
    const CONCURRENT: u64 = 1 << 8 | Algorithm::SlidingLog.number() as u64;

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
    /// A [concurrency limit](Self::concurrent) is counted by [`Algorithm::SlidingLog`] alone.
    pub fn with_algorithm(self, algorithm: Algorithm) -> Result<Self, Error> {
        if self.is_concurrent() {
            return match algorithm {
                Algorithm::SlidingLog => Ok(self),
                _ => Err(Error::invalid("algorithm", algorithm, format_args!("none for {self}"))),
            };
        }
        let quota = Self::new(self.limit(), self.window(), algorithm)?;
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
    /// leases](crate::store::Traits::counts_leases). The [guide](crate::guide::leases) says when to
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
    /// - the quota is a [concurrency limit](Self::concurrent);
    /// - the lease is not a whole number of milliseconds, or 0;
    /// - it is longer than a tenth of the window, or than 1 hour;
    /// - the window is shorter than 500 ms, or window and
    ///   lease together are longer than [`MAX_WINDOW`](Self::MAX_WINDOW);
    /// - a token bucket refills its whole burst, or more, during the lease.
    pub fn leased(self, lease: Duration) -> Result<Self, Error> {
        validate_lease(lease, &self.with_lease(0))?;
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
    /// same, and then returns true from [`counts_leases`](crate::store::Traits::counts_leases).
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
    pub fn counted(&self) -> Self {
        match self.lease_millis() {
            0 => *self,
            _ => counted_by_store(self.with_lease(0), self.lease_micros()),
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

    /// Returns the parameter of the algorithm, as the Lua script knows it: 1 for a sliding log that counts
    /// units in flight.
    #[cfg(feature = "redis")]
    pub(crate) const fn parameter(&self) -> u64 {
        self.algorithm >> 8
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

    pub(crate) const fn with_lease(self, millis: u64) -> Self {
        Self { limit_and_lease: self.limit() | millis << Self::LIMIT_BITS, ..self }
    }

    /// Returns one of `shares` equal shares of the limit and of the burst, each at least 1 unit.
    pub(crate) fn share(self, shares: u32) -> Self {
        if shares == 1 {
            return self;
        }
        let algorithm = self.algorithm().map_burst(|burst| share(burst, shares));
        let quota = Self::packed(share(self.limit(), shares), self.window, algorithm);
        if self.is_concurrent() {
            return Self { algorithm: Self::CONCURRENT, ..quota };
        }
        quota.with_lease(self.lease_millis())
    }

    pub(super) const fn packed(limit: u64, window: u64, algorithm: Algorithm) -> Self {
        let algorithm = algorithm.parameter() << 8 | algorithm.number() as u64;
        Self { limit_and_lease: limit, window, algorithm }
    }
}

impl fmt::Debug for Quota {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Quota({self})")
    }
}

/// Checks that `quota` can be leased for `lease`.
fn validate_lease(lease: Duration, quota: &Quota) -> Result<(), Error> {
    if quota.is_concurrent() {
        let allowed = format!("none for {quota} (units in flight are never leased)");
        return Err(Error::invalid("lease", lease, allowed));
    }
    if quota.window() < Quota::MIN_LEASED_WINDOW {
        let allowed = "500 ms to 400 days for a leased quota";
        return Err(Error::invalid("window", quota.window(), allowed));
    }
    let (longest, reason) = longest_lease(quota);
    if longest < Duration::from_millis(1) {
        return Err(Error::invalid("lease", lease, format_args!("none for {quota} ({reason})")));
    }
    if lease.is_zero() || lease > longest {
        return Err(Error::invalid(
            "lease",
            lease,
            format_args!("1 ms to {longest:?} for {quota} ({reason})"),
        ));
    }
    if !lease.subsec_nanos().is_multiple_of(1_000_000) {
        return Err(Error::invalid("lease", lease, "a whole number of milliseconds"));
    }
    Ok(())
}

/// Returns the longest lease of `quota` in whole milliseconds, and the rule that ends it there.
fn longest_lease(quota: &Quota) -> (Duration, &'static str) {
    let burst = match quota.algorithm().units_return() {
        UnitsReturn::AtRate { burst } => {
            // One unit of the burst has to remain: burst - ceil(limit * lease / window) >= 1.
            let micros =
                u128::from(burst - 1) * quota.window().as_micros() / u128::from(quota.limit());
            Duration::from_micros(u64::try_from(micros).unwrap_or(u64::MAX))
        }
        UnitsReturn::AfterWindow | UnitsReturn::ByPeriod => Duration::MAX,
    };
    let rules = [
        (quota.window() / 10, "a tenth of the window"),
        (Quota::MAX_LEASE, "1 hour"),
        (Quota::MAX_WINDOW - quota.window(), "window and lease are at most 400 days"),
        (burst, "the burst must exceed what refills during a lease"),
    ];
    let (longest, reason) = rules.into_iter().min().unwrap_or_default();
    (Duration::from_millis(longest.as_millis() as u64), reason)
}

/// Returns one of `shares` equal shares of these units, at least 1.
fn share(units: u64, shares: u32) -> u64 {
    (units / u64::from(shares)).max(1)
}

/// Returns the quota by which a shared store counts `quota`, which has been leased for `micros`.
fn counted_by_store(quota: Quota, micros: u64) -> Quota {
    let limit = quota.limit();
    let window = quota.window_micros();
    let algorithm = quota.algorithm();
    match algorithm.units_return() {
        UnitsReturn::AtRate { .. } => {
            let refill =
                (u128::from(limit) * u128::from(micros)).div_ceil(u128::from(window)) as u64;
            // The burst of a share of a quota may be as small as the refill.
            let rest = algorithm.map_burst(|burst| burst.saturating_sub(refill).max(1));
            Quota::packed(limit, window, rest)
        }
        UnitsReturn::AfterWindow => Quota::packed(limit, window + micros, algorithm),
        UnitsReturn::ByPeriod => quota,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn quota(text: &str) -> Quota {
        text.parse().unwrap()
    }

    #[test]
    fn a_lease_ends_with_the_period_that_counts_its_units() {
        let lease_at =
            |text: &str, micros| quota(text).lease_micros_at(Timestamp::from_micros(micros));
        for algorithm in ["sliding-counter", "fixed-window"] {
            let text = format!("9/10s {algorithm} leased(1s)");
            for (granted, lease) in
                [(0, 1_000_000), (9_000_000, 1_000_000), (9_000_001, 999_999), (19_999_999, 1)]
            {
                assert_eq!(lease_at(&text, granted), lease, "{text} at {granted}");
            }
        }
        for algorithm in ["sliding-log", "sliding-buckets(5)", "token-bucket(9)"] {
            let text = format!("9/10s {algorithm} leased(1s)");
            for granted in [0, 9_000_001, 9_999_999] {
                assert_eq!(lease_at(&text, granted), 1_000_000, "{text}");
            }
        }
        assert_eq!(lease_at("9/10s", 0), 0);
    }

    #[cfg(feature = "redis")]
    #[test]
    fn the_parameter_belongs_to_the_algorithm() {
        for (text, parameter) in [
            ("9/s", 0),
            ("9/s sliding-buckets(7)", 7),
            ("9/s token-bucket(5) leased(20ms)", 5),
            ("9 concurrent expires(60s)", 1),
        ] {
            assert_eq!(quota(text).parameter(), parameter, "{text}");
        }
    }

    #[test]
    fn the_shares_of_a_quota_are_leased_or_concurrent_as_it_is() {
        for (whole, share) in [
            ("100/s leased(100ms)", "25/s leased(100ms)"),
            ("100/s token-bucket(80) leased(100ms)", "25/s token-bucket(20) leased(100ms)"),
            ("100 concurrent expires(60s)", "25 concurrent expires(60s)"),
        ] {
            assert_eq!(quota(whole).share(4), quota(share));
        }
        // As small as this no quota can be leased, but each share keeps at least 1 unit.
        let smallest = quota("100/s token-bucket(80) leased(100ms)").share(80);
        assert_eq!(smallest.counted(), quota("1/s token-bucket(1)"));
    }
}
