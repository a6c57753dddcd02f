//! [`Algorithm`], and the registry of all algorithms.

use std::{fmt, time::Duration};

use crate::error::Error;

/// The bounds of a [`Quota`](super::Quota), which publishes them.
pub(super) const MAX_LIMIT: u64 = 1_000_000_000_000;
pub(super) const MAX_LOGGED: u64 = 1 << 31;
pub(super) const MAX_WINDOW: Duration = Duration::from_secs(400 * 86_400);

/// An algorithm that counts the units of a [`Quota`](super::Quota).
///
/// [The table of bounds](crate#choosing-an-algorithm) helps to choose one. [`live_limits`] says what
/// happens to units that are spent when the quota changes.
///
/// ```
/// use plimsoll::{Algorithm, Quota};
///
/// let quota = Quota::per_minute(100).with_algorithm(Algorithm::SlidingBuckets(6))?;
/// assert_eq!(quota.to_string(), "100/min sliding-buckets(6)");
/// # Ok::<(), plimsoll::Error>(())
/// ```
///
/// [`live_limits`]: crate::guide::live_limits
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
#[cfg_attr(
    feature = "serde",
    derive(serde::Serialize, serde::Deserialize),
    serde(try_from = "String", into = "String")
)]
#[non_exhaustive]
pub enum Algorithm {
    /// Remembers every charge with its time: at most `limit` units in any window.
    ///
    /// A key takes about 10 bytes for each admitted request, and has at most 10,001 records: above a
    /// limit of 10,000, times are rounded up to the next of 10,000 edges a window, so a unit comes
    /// back up to `window / 10_000` late. A refunded or forced charge leaves a record too. With them a
    /// key has at most 20,001, and from 10,000 on, times are rounded under any limit.
    #[default]
    SlidingLog,
    /// A sliding log with times rounded up to the next of `n` edges a window: at most `limit` units
    /// in any window. A unit comes back up to `window / n` late.
    ///
    /// A key takes at most `n + 1` records of 10 bytes.
    SlidingBuckets(u16),
    /// Counts the current window and the previous one, which is weighted by its overlap with the
    /// trailing window: near `limit` units a window on steady traffic, at most `2 * limit - 1`.
    SlidingCounter,
    /// Refills at `limit / window` up to `burst` units, as GCRA does: at most `burst + limit` units
    /// in any window.
    TokenBucket {
        /// The most units that can be spent at once.
        burst: u64,
    },
    /// Counts from one multiple of the window to the next: at most `2 * limit` units in any window,
    /// when bursts meet at an edge.
    FixedWindow,
}

/// The registry of the algorithms, one line each: the parameter if it has one, the name in the text
/// of a quota, the number by which the Lua script knows it, the layout of its keys in Redis, its Lua
/// file, and the type of its state.
///
/// A released number keeps its meaning, because instances of two releases share keys while a service
/// is rolled out. A state that is stored in another way gets another layout.
macro_rules! for_each_algorithm {
    ($callback:ident) => {
        $callback! {
            SlidingLog {}, "sliding-log", 1, "l4", sliding_log: Ring;
            SlidingBuckets { 0: n }, "sliding-buckets", 2, "b4", sliding_buckets: Ring;
            SlidingCounter {}, "sliding-counter", 3, "c3", sliding_counter: Periods<1>;
            TokenBucket { burst: burst }, "token-bucket", 4, "t2", token_bucket: TokenBucket;
            FixedWindow {}, "fixed-window", 5, "f3", fixed_window: Periods<0>;
        }
    };
}
pub(crate) use for_each_algorithm;

macro_rules! names {
    ($(
        $name:ident { $($field:tt: $parameter:ident)? },
        $text:literal, $number:literal, $layout:literal, $_lua:ident: $_state:ty;
    )+) => {
        #[repr(u8)]
        enum Number {
            $($name = $number,)+
        }

        impl Algorithm {
            /// One of each algorithm, for tests that must not miss any. A parameter is 1.
            #[doc(hidden)]
            pub const EACH: &[Self] = &[$(Self::from_parts($number, 1)),+];

            /// The names, each with its parameter and a comma.
            pub(super) const NAMES: &str =
                concat!($($text, $("(", stringify!($parameter), ")",)? ", "),+);

            /// Returns the number by which the crate and its Lua script know the algorithm.
            pub(crate) const fn number(self) -> u8 {
                match self {
                    $(Self::$name { .. } => Number::$name as u8,)+
                }
            }

            /// Returns the parameter, 0 if the algorithm has none.
            pub(crate) const fn parameter(self) -> u64 {
                match self {
                    $(Self::$name { $($field: $parameter)? } => 0 $(+ $parameter as u64)?,)+
                }
            }

            const fn has_parameter(self) -> bool {
                match self {
                    $(Self::$name { .. } => !stringify!($($parameter)?).is_empty(),)+
                }
            }

            /// Returns the algorithm of a number and a parameter that are known to be valid.
            pub(crate) const fn from_parts(number: u8, _parameter: u64) -> Self {
                $(if number == Number::$name as u8 {
                    return Self::$name { $($field: { let $parameter = _parameter; $parameter as _ })? };
                })+
                Self::SlidingLog
            }

            /// Returns the last part of the name of a state: a letter, and the version of the state.
            pub(crate) const fn layout(self) -> &'static str {
                match self {
                    $(Self::$name { .. } => $layout,)+
                }
            }

            /// The number and the layout of each algorithm.
            #[cfg(all(test, feature = "redis"))]
            pub(crate) const STORED: &[(u8, &str)] = &[$(($number, $layout)),+];

            /// Returns the name in the text of a quota. [`Display`] adds the parameter.
            ///
            /// [`Display`]: fmt::Display
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self {
                    $(Self::$name { .. } => $text,)+
                }
            }

            /// Returns the algorithm of this name and parameter, if there is one.
            fn named(name: &str, parameter: Option<u64>) -> Option<Self> {
                let number = match name {
                    $($text => Number::$name as u8,)+
                    _ => return None,
                };
                let given = parameter.unwrap_or_default();
                let found = Self::from_parts(number, given);
                let fits = found.has_parameter() == parameter.is_some() && found.parameter() == given;
                fits.then_some(found)
            }
        }
    };
}

for_each_algorithm!(names);

/// The time at which units return under an algorithm. Leases, shares, debt marks and waits in a queue
/// follow from it.
#[derive(Debug, Clone, Copy)]
pub(crate) enum UnitsReturn {
    /// Each unit a window after it was charged, or later.
    AfterWindow,
    /// The units of a period return together at its end, or bit by bit during the next period. A
    /// period begins at a multiple of the window.
    ByPeriod,
    /// One unit after the other at the rate of the quota, up to `burst` units, which is the parameter.
    AtRate {
        /// The most units that can be spent at once.
        burst: u64,
    },
}

// No match of this file has an arm for all other algorithms, so the compiler names what a new one needs.
impl Algorithm {
    /// Returns the time at which units return.
    pub(crate) const fn units_return(self) -> UnitsReturn {
        match self {
            Self::SlidingLog | Self::SlidingBuckets(_) => UnitsReturn::AfterWindow,
            Self::SlidingCounter | Self::FixedWindow => UnitsReturn::ByPeriod,
            Self::TokenBucket { burst } => UnitsReturn::AtRate { burst },
        }
    }

    /// Returns whether the mark of a charge has the debt after it, so that a refund of a part of the
    /// charge leaves the units that other charges have paid. With the wrong answer, refunded units of
    /// a lease come back twice.
    pub(crate) const fn has_debt_marks(self) -> bool {
        matches!(self.units_return(), UnitsReturn::AtRate { .. })
    }

    /// Returns the same algorithm with the burst that `change` makes of its own, if it has one.
    pub(crate) fn map_burst(self, change: impl FnOnce(u64) -> u64) -> Self {
        match self.units_return() {
            UnitsReturn::AtRate { burst } => Self::from_parts(self.number(), change(burst)),
            UnitsReturn::AfterWindow | UnitsReturn::ByPeriod => self,
        }
    }

    /// Checks the bounds that depend on the algorithm. Limit and window are known to be in the
    /// bounds of every quota.
    pub(crate) fn validate(self, limit: u64, window: u64) -> Result<(), Error> {
        match self {
            Self::SlidingLog => validate_logged(limit),
            Self::SlidingBuckets(n) => {
                validate_logged(limit)?;
                if !(1..=1000).contains(&n) {
                    return Err(Error::invalid("number of sliding buckets", n, "1 to 1000"));
                }
                Ok(())
            }
            Self::TokenBucket { burst } => validate_burst(burst, limit, window),
            Self::SlidingCounter | Self::FixedWindow => Ok(()),
        }
    }

    /// Parses a name, with the parameter in parentheses if the algorithm has one.
    pub(crate) fn from_text(text: &str) -> Option<Self> {
        let Some((name, rest)) = text.split_once('(') else { return Self::named(text, None) };
        let digits = rest.strip_suffix(')')?;
        // `parse` would also accept a sign.
        let parameter = digits.bytes().all(|byte| byte.is_ascii_digit()).then_some(digits)?;
        Self::named(name, Some(parameter.parse().ok()?))
    }
}

impl fmt::Display for Algorithm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())?;
        if self.has_parameter() { write!(f, "({})", self.parameter()) } else { Ok(()) }
    }
}

/// Checks that the records of a log can hold the units.
fn validate_logged(limit: u64) -> Result<(), Error> {
    if limit > MAX_LOGGED {
        let allowed = "1 to 2147483648 for a sliding log or sliding buckets";
        return Err(Error::invalid("limit", limit, allowed));
    }
    Ok(())
}

/// Checks that the burst refills within the longest window, so that a timestamp can hold the end.
fn validate_burst(burst: u64, limit: u64, window: u64) -> Result<(), Error> {
    if burst == 0 || burst > MAX_LIMIT {
        return Err(Error::invalid("burst", burst, "1 to 1000000000000"));
    }
    let refill = u128::from(burst) * u128::from(window) / u128::from(limit);
    if refill > MAX_WINDOW.as_micros() {
        return Err(Error::invalid("burst", burst, "what refills in 400 days at this rate"));
    }
    Ok(())
}
