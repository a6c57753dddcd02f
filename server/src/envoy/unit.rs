//! The units of time of a limit, and the [quota](Quota) of a number of requests per unit.

use std::time::Duration;

use envoy_types::pb::envoy::{
    service::ratelimit::v3::rate_limit_response::rate_limit::Unit as ShownUnit,
    r#type::v3::RateLimitUnit,
};
use plimsoll::{Algorithm, Error, Quota};

/// A unit of time. A month has 30 days, and a year 365.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Unit {
    Second,
    Minute,
    Hour,
    Day,
    Week,
    Month,
    Year,
}

const DAY: u64 = 86_400;

impl Unit {
    /// Each unit with its name in configurations, its length in seconds, and its form in responses.
    const EACH: [(Self, &str, u64, ShownUnit); 7] = [
        (Self::Second, "second", 1, ShownUnit::Second),
        (Self::Minute, "minute", 60, ShownUnit::Minute),
        (Self::Hour, "hour", 3_600, ShownUnit::Hour),
        (Self::Day, "day", DAY, ShownUnit::Day),
        (Self::Week, "week", 7 * DAY, ShownUnit::Week),
        (Self::Month, "month", 30 * DAY, ShownUnit::Month),
        (Self::Year, "year", 365 * DAY, ShownUnit::Year),
    ];

    /// Returns the names in configurations.
    pub(super) fn names() -> [&'static str; 7] {
        Self::EACH.map(|(_, name, ..)| name)
    }

    /// Returns the unit of this name, in upper or lower case.
    pub(super) fn named(text: &str) -> Option<Self> {
        Self::find(|(_, name, ..)| name.eq_ignore_ascii_case(text))
    }

    /// Returns the name in configurations.
    pub(super) fn name(self) -> &'static str {
        Self::EACH[self as usize].1
    }

    /// Returns the length.
    pub(super) fn window(self) -> Duration {
        Duration::from_secs(Self::EACH[self as usize].2)
    }

    /// Returns the unit as a response shows it.
    pub(super) fn shown(self) -> ShownUnit {
        Self::EACH[self as usize].3
    }

    /// Returns the unit of this length, if there is one.
    pub(super) fn of_window(window: Duration) -> Option<Self> {
        Self::find(|(unit, ..)| unit.window() == window)
    }

    /// Returns the unit that a response shows as this number.
    pub(super) fn of_shown(number: i32) -> Option<Self> {
        Self::find(|(.., shown)| *shown as i32 == number)
    }

    /// Returns the unit of a limit that a request brings along. Its numbers are the same as in responses,
    /// without weeks.
    pub(super) fn of_override(number: i32) -> Option<Self> {
        RateLimitUnit::try_from(number).ok().and_then(|unit| Self::of_shown(unit as i32))
    }

    fn find(is_it: impl Fn(&(Self, &str, u64, ShownUnit)) -> bool) -> Option<Self> {
        Self::EACH.into_iter().find(is_it).map(|(unit, ..)| unit)
    }
}

/// Returns the [quota](Quota) of a number of requests per unit. A number that no log can count has
/// [`Algorithm::SlidingCounter`].
///
/// # Errors
///
/// Returns an error if the number is 0, or if the algorithm cannot count it.
pub(super) fn quota_of(requests: u32, unit: Unit, algorithm: Algorithm) -> Result<Quota, Error> {
    let algorithm = match algorithm {
        Algorithm::SlidingLog | Algorithm::SlidingBuckets(_)
            if u64::from(requests) > Quota::MAX_LOGGED =>
        {
            Algorithm::SlidingCounter
        }
        other => other,
    };
    Quota::new(requests.into(), unit.window(), algorithm)
}
