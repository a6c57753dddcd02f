//! The algorithms by name, and the registry of them.

use std::fmt;

use super::Quota;
use crate::error::Error;

/// How units are counted. [The table of bounds](crate#choosing-an-algorithm) helps to choose.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
#[non_exhaustive]
pub enum Algorithm {
    /// Every charge is remembered with its time: never more than the limit in any window.
    /// About 10 bytes per admitted request.
    #[default]
    SlidingLog,
    /// As the log, with times rounded up to `window / n`: never more than the limit in any window,
    /// and a unit comes back up to `window / n` late. At most `n + 1` records of 10 bytes.
    SlidingBuckets(u16),
    /// Two counters, the older weighted by how much of its window still overlaps. Near the limit
    /// on steady traffic, at most `2 * limit - 1` in any window.
    SlidingCounter,
    /// Refills at `limit / window` up to `burst` units (what GCRA computes): at most
    /// `burst + limit` in any window.
    TokenBucket {
        /// The most units that can be spent at once.
        burst: u64,
    },
    /// One counter that starts again at each multiple of the window: at most `2 * limit` in any
    /// window, when bursts meet at an edge.
    FixedWindow,
}

/// Registers the algorithms: one line each, with the parameter that it has, the name in quotas, the
/// number by which the script knows it, the layout of its keys in Redis, and the state.
///
/// A number that has been released keeps its meaning, because instances of two releases share keys
/// while a service is rolled out. A state that is stored in another way gets another layout.
macro_rules! for_each_algorithm {
    ($callback:ident) => {
        $callback! {
            SlidingLog {}, "sliding-log", 1, "l1", sliding_log::SlidingLog;
            SlidingBuckets { 0: n }, "sliding-buckets", 2, "b1", sliding_buckets::SlidingBuckets;
            SlidingCounter {}, "sliding-counter", 3, "c1", sliding_counter::SlidingCounter;
            TokenBucket { burst: burst }, "token-bucket", 4, "t1", token_bucket::TokenBucket;
            FixedWindow {}, "fixed-window", 5, "f1", fixed_window::FixedWindow;
        }
    };
}
pub(crate) use for_each_algorithm;

macro_rules! names {
    ($(
        $name:ident { $($field:tt: $parameter:ident)? },
        $text:literal, $number:literal, $layout:literal, $_state:ty;
    )+) => {
        #[repr(u8)]
        enum Number {
            $($name = $number,)+
        }

        impl Algorithm {
            /// The number by which this process and the script know the algorithm.
            #[inline]
            pub(crate) const fn number(self) -> u8 {
                match self {
                    $(Self::$name { .. } => Number::$name as u8,)+
                }
            }

            /// The parameter; 0 if the algorithm has none.
            #[inline]
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

            /// The algorithm of this number and parameter, which are those of a valid one.
            #[inline]
            pub(crate) const fn from_parts(number: u8, _parameter: u64) -> Self {
                $(if number == Number::$name as u8 {
                    return Self::$name { $($field: { let $parameter = _parameter; $parameter as _ })? };
                })+
                Self::SlidingLog
            }

            /// What the keys in Redis end with: a letter, and the version of what they hold.
            #[cfg(feature = "redis")]
            pub(crate) const fn layout(self) -> &'static str {
                match self {
                    $(Self::$name { .. } => $layout,)+
                }
            }

            /// The number and the layout of each.
            #[cfg(all(test, feature = "redis"))]
            pub(crate) const STORED: &[(u8, &str)] = &[$(($number, $layout)),+];

            /// The name in the text of a quota, without the parameter, which [`Display`] adds.
            ///
            /// [`Display`]: fmt::Display
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self {
                    $(Self::$name { .. } => $text,)+
                }
            }

            /// The algorithm of this name and parameter, if there is one.
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

impl Algorithm {
    /// Checks what depends on the algorithm; limit and window are in bounds already.
    pub(crate) fn validate(self, limit: u64, window: u64) -> Result<(), Error> {
        match self {
            Self::SlidingLog | Self::SlidingBuckets(_) if limit > Quota::MAX_LOGGED => {
                Err(Error::invalid(
                    "limit",
                    limit,
                    "1 to 2147483648 for a sliding log or sliding buckets",
                ))
            }
            Self::SlidingBuckets(n) if !(1..=1000).contains(&n) => {
                Err(Error::invalid("number of sliding buckets", n, "1 to 1000"))
            }
            Self::TokenBucket { burst } => validate_burst(burst, limit, window),
            _ => Ok(()),
        }
    }

    /// Reads a name with the parameter that some algorithms have: `token-bucket(20)`.
    pub(crate) fn from_text(text: &str) -> Option<Self> {
        let Some((name, rest)) = text.split_once('(') else { return Self::named(text, None) };
        let digits = rest.strip_suffix(')')?;
        // `parse` would also take a sign.
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

/// The burst must refill in time for a timestamp to hold it.
fn validate_burst(burst: u64, limit: u64, window: u64) -> Result<(), Error> {
    if burst == 0 || burst > Quota::MAX_LIMIT {
        return Err(Error::invalid("burst", burst, "1 to 1000000000000"));
    }
    let refill = u128::from(burst) * u128::from(window) / u128::from(limit);
    if refill > Quota::MAX_WINDOW.as_micros() {
        return Err(Error::invalid("burst", burst, "what refills in 400 days at this rate"));
    }
    Ok(())
}
