//! The units of time of a limit, and the quota of a number of requests per unit.

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

impl Unit {
    /// Each unit with its name in configurations.
    pub(super) const EACH: [(Self, &str); 7] = [
        (Self::Second, "second"),
        (Self::Minute, "minute"),
        (Self::Hour, "hour"),
        (Self::Day, "day"),
        (Self::Week, "week"),
        (Self::Month, "month"),
        (Self::Year, "year"),
    ];

    /// Returns the unit of this name, in upper or lower case.
    pub(super) fn named(text: &str) -> Option<Self> {
        let named = Self::EACH.into_iter().find(|(_, name)| name.eq_ignore_ascii_case(text));
        named.map(|(unit, _)| unit)
    }

    /// Returns the name in configurations.
    pub(super) fn name(self) -> &'static str {
        Self::EACH.into_iter().find(|(unit, _)| *unit == self).map_or("", |(_, name)| name)
    }

    /// Returns the length.
    pub(super) const fn window(self) -> Duration {
        const DAY: u64 = 86_400;
        Duration::from_secs(match self {
            Self::Second => 1,
            Self::Minute => 60,
            Self::Hour => 3_600,
            Self::Day => DAY,
            Self::Week => 7 * DAY,
            Self::Month => 30 * DAY,
            Self::Year => 365 * DAY,
        })
    }

    /// Returns the unit of this length, if there is one.
    pub(super) fn of_window(window: Duration) -> Option<Self> {
        Self::EACH.into_iter().map(|(unit, _)| unit).find(|unit| unit.window() == window)
    }

    /// Returns the unit of a limit that a request brings along. Such a limit has no weeks.
    pub(super) fn of_override(number: i32) -> Option<Self> {
        Some(match RateLimitUnit::try_from(number).ok()? {
            RateLimitUnit::Unknown => return None,
            RateLimitUnit::Second => Self::Second,
            RateLimitUnit::Minute => Self::Minute,
            RateLimitUnit::Hour => Self::Hour,
            RateLimitUnit::Day => Self::Day,
            RateLimitUnit::Month => Self::Month,
            RateLimitUnit::Year => Self::Year,
        })
    }

    /// Returns the unit as a response shows it.
    pub(super) const fn shown(self) -> ShownUnit {
        match self {
            Self::Second => ShownUnit::Second,
            Self::Minute => ShownUnit::Minute,
            Self::Hour => ShownUnit::Hour,
            Self::Day => ShownUnit::Day,
            Self::Week => ShownUnit::Week,
            Self::Month => ShownUnit::Month,
            Self::Year => ShownUnit::Year,
        }
    }
}

/// Returns the quota of a number of requests per unit. A number that no log can count has
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
    Quota::new_with_algorithm(requests.into(), unit.window(), algorithm)
}
