//! The algorithms: pure state machines, without I/O and without a clock.
//!
//! Each is one file with a state that answers three questions at a time `now` under a [`Quota`]
//! (how many units are free, how long until so many are free, when does nothing matter any more)
//! and takes two orders (spend, give back). Everything else, from exact waits to what a caller
//! sees as [`Standing`](crate::Standing), is derived from these here.
//!
//! Asking never changes a state: a denial leaves nothing behind.

mod fixed_window;
mod lasting;
mod math;
mod ring;
mod sliding_buckets;
mod sliding_counter;
mod sliding_log;
mod token_bucket;

use std::fmt;

use crate::{clock::Timestamp, error::Error, quota::Quota, standing::Standing};

pub(crate) use lasting::still_count;
pub(crate) use ring::Room;

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

/// What an algorithm remembers of one charge so that it can give back what that charge still
/// weighs, and nothing else.
///
/// Three numbers, which mean something to the store that made them, and nothing to anybody else.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Mark(u64, u64, u64);

impl Mark {
    /// The mark of these numbers.
    #[must_use]
    #[inline]
    pub const fn new([first, second, third]: [u64; 3]) -> Self {
        Self(first, second, third)
    }

    /// The numbers that it was made of.
    #[must_use]
    #[inline]
    pub const fn parts(self) -> [u64; 3] {
        [self.0, self.1, self.2]
    }
}

/// A charge to give back: the quota under which it was made, how many units, and its mark.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Spent {
    pub(crate) quota: Quota,
    pub(crate) units: u64,
    pub(crate) mark: Mark,
}

/// What a state comes to at one time under one quota.
pub(crate) trait View {
    /// Units that can be spent at once.
    fn free(&self) -> u64;
}

/// The state machine of one algorithm.
pub(crate) trait Machine: Default {
    type View: View;

    /// What stands at `now` under `quota`. A state remembers when it was last changed, and `now`
    /// is never earlier than that.
    fn view(&self, quota: &Quota, now: Timestamp) -> Self::View;
    /// The shortest wait, in microseconds, until `units` are free if nobody else spends; 0 if
    /// they are. `units` is at most the capacity.
    fn wait(&self, view: &Self::View, units: u64) -> u64;
    /// Spends units, whether or not they are free, and brings the view up to date.
    fn spend(&mut self, view: &mut Self::View, units: u64, room: &dyn Room) -> Mark;
    /// Gives back what a charge still weighs; says how many units that was.
    fn give_back(&mut self, quota: &Quota, now: Timestamp, spent: &Spent) -> u64;
    /// From when on this state is the same as none, under any quota.
    fn expires_at(&self) -> Timestamp;
    /// Units that have not come back at `now`, roughly: what forgetting this state would forgive.
    fn owed(&self, now: Timestamp) -> u64;
    /// Heap bytes that the state holds.
    fn heap_bytes(&self) -> usize {
        0
    }
}

/// Registers the algorithms: one line each, with the parameter that it has, the name in quotas, the
/// number by which the script knows it, the layout of its keys in Redis, and the state.
///
/// A number that has been released keeps its meaning, because instances of two releases share keys
/// while a service is rolled out. A state that is stored in another way gets another layout.
macro_rules! algorithms {
    ($(
        $name:ident { $($field:tt: $parameter:ident)? },
        $text:literal, $number:literal, $layout:literal, $state:ty;
    )+) => {
        /// The state of one key under one policy.
        #[derive(Debug)]
        pub(crate) enum State {
            $($name($state),)+
        }

        impl State {
            /// The state of a key that has spent nothing.
            pub(crate) fn new(algorithm: Algorithm) -> Self {
                match algorithm {
                    $(Algorithm::$name { .. } => Self::$name(<$state>::default()),)+
                }
            }

            /// Units that can be spent at once.
            pub(crate) fn free(&self, quota: &Quota, now: Timestamp) -> u64 {
                match self {
                    $(Self::$name(state) => state.view(quota, now).free(),)+
                }
            }

            /// Where the key stands, and how long a charge of `units` has to wait.
            pub(crate) fn standing(&self, quota: &Quota, now: Timestamp, units: u64) -> Standing {
                match self {
                    $(Self::$name(state) => {
                        standing(state, &state.view(quota, now), quota, units)
                    })+
                }
            }

            /// Spends what `affordable` says of the free units: how many that was, and where the key
            /// then stands. If none, how long a charge of `cost` has to wait.
            #[inline(always)]
            pub(crate) fn spend(
                &mut self,
                quota: &Quota,
                now: Timestamp,
                cost: u64,
                affordable: impl FnOnce(u64) -> u64,
                room: &dyn Room,
            ) -> (u64, Mark, Standing) {
                match self {
                    $(Self::$name(state) => spend(state, quota, now, cost, affordable, room),)+
                }
            }

            pub(crate) fn give_back(&mut self, quota: &Quota, now: Timestamp, spent: &Spent) -> u64 {
                match self {
                    $(Self::$name(state) => state.give_back(quota, now, spent),)+
                }
            }

            pub(crate) fn expires_at(&self) -> Timestamp {
                match self {
                    $(Self::$name(state) => state.expires_at(),)+
                }
            }

            pub(crate) fn owed(&self, now: Timestamp) -> u64 {
                match self {
                    $(Self::$name(state) => state.owed(now),)+
                }
            }

            pub(crate) fn heap_bytes(&self) -> usize {
                match self {
                    $(Self::$name(state) => state.heap_bytes(),)+
                }
            }
        }

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

algorithms! {
    SlidingLog {}, "sliding-log", 1, "l1", sliding_log::SlidingLog;
    SlidingBuckets { 0: n }, "sliding-buckets", 2, "b1", sliding_buckets::SlidingBuckets;
    SlidingCounter {}, "sliding-counter", 3, "c1", sliding_counter::SlidingCounter;
    TokenBucket { burst: burst }, "token-bucket", 4, "t1", token_bucket::TokenBucket;
    FixedWindow {}, "fixed-window", 5, "f1", fixed_window::FixedWindow;
}

#[inline(always)]
fn spend<M: Machine>(
    state: &mut M,
    quota: &Quota,
    now: Timestamp,
    cost: u64,
    affordable: impl FnOnce(u64) -> u64,
    room: &dyn Room,
) -> (u64, Mark, Standing) {
    let mut view = state.view(quota, now);
    let units = affordable(view.free());
    let (mark, waiting) = match units {
        0 => (Mark::default(), cost),
        _ => (state.spend(&mut view, units, room), 0),
    };
    (units, mark, standing(state, &view, quota, waiting))
}

/// Everything that a caller is told follows from what is free and how long a number of units takes.
#[inline(always)]
fn standing<M: Machine>(state: &M, view: &M::View, quota: &Quota, units: u64) -> Standing {
    let limit = quota.capacity();
    let remaining = view.free();
    if remaining >= limit {
        return Standing::full(limit);
    }
    // Each wait is at most asked for once: they take divisions, or a search.
    let next_after = state.wait(view, remaining + 1);
    let wait = |units| if units == remaining + 1 { next_after } else { state.wait(view, units) };
    let reset_after = wait(limit);
    let retry_after = (units > remaining && units <= limit).then(|| wait(units));
    Standing { limit, remaining, next_after, reset_after, retry_after }
}

impl Algorithm {
    /// Checks what depends on the algorithm; limit and window are in bounds already.
    pub(crate) fn validate(self, quota: &Quota) -> Result<(), Error> {
        match self {
            Self::SlidingLog | Self::SlidingBuckets(_) if quota.limit() > Quota::MAX_LOGGED => {
                Err(Error::invalid(
                    "limit",
                    quota.limit(),
                    "1 to 2147483648 for a sliding log or sliding buckets",
                ))
            }
            Self::SlidingBuckets(n) if !(1..=1000).contains(&n) => {
                Err(Error::invalid("number of sliding buckets", n, "1 to 1000"))
            }
            Self::TokenBucket { burst } => token_bucket::validate(quota, burst),
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
