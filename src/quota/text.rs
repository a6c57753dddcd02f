//! Quotas as text: `100/min`, `5/10s sliding-counter`, `50/s token-bucket(20)`,
//! `60000/min leased(500ms)`.

use std::{fmt, str::FromStr, time::Duration};

use super::Quota;
use crate::{error::Error, quota::Algorithm};

const FORM: &str = "LIMIT/WINDOW [ALGORITHM] [leased(TIME)], such as 100/min, 5/10s, \
                    1000/day sliding-buckets(24), 50/s token-bucket(20), 60000/min leased(500ms)";

const UNITS: [(&str, u64); 17] = [
    ("us", 1),
    ("ms", 1_000),
    ("s", 1_000_000),
    ("sec", 1_000_000),
    ("second", 1_000_000),
    ("seconds", 1_000_000),
    ("m", 60_000_000),
    ("min", 60_000_000),
    ("minute", 60_000_000),
    ("minutes", 60_000_000),
    ("h", 3_600_000_000),
    ("hour", 3_600_000_000),
    ("hours", 3_600_000_000),
    ("d", 86_400_000_000),
    ("day", 86_400_000_000),
    ("days", 86_400_000_000),
    ("w", 604_800_000_000),
];

impl FromStr for Quota {
    type Err = Error;

    /// Reads `LIMIT/WINDOW [ALGORITHM] [leased(TIME)]`. The window is a number (1 if left out) and one
    /// of `us`, `ms`, `s`, `m` or `min`, `h`, `d` or `day`, `w`; long names work too. The limit may be
    /// grouped with `_`. Without an algorithm it is `sliding-log`. The time of a lease is written like
    /// a window, with its number.
    fn from_str(text: &str) -> Result<Self, Error> {
        let wrong = || Error::invalid("quota", text, FORM);
        let mut words = text.split_ascii_whitespace().peekable();
        let (limit, window) =
            words.next().and_then(|rate| rate.split_once('/')).ok_or_else(wrong)?;
        let algorithm = match words.next_if(|word| lease_time(word).is_none()) {
            Some(name) => Algorithm::from_text(name).ok_or_else(wrong)?,
            None => Algorithm::SlidingLog,
        };
        let lease = words.next().map(|word| {
            lease_time(word).filter(|time| time.starts_with(|first: char| first.is_ascii_digit()))
        });
        if words.next().is_some() {
            return Err(wrong());
        }
        let limit = number(&limit.replace('_', "")).ok_or_else(wrong)?;
        let window = duration(window).ok_or_else(wrong)?;
        let quota = Self::new_with_algorithm(limit, window, algorithm)?;
        match lease {
            Some(time) => quota.leased(time.and_then(duration).ok_or_else(wrong)?),
            None => Ok(quota),
        }
    }
}

impl fmt::Display for Quota {
    /// Writes the text that parses to the same quota.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/", self.limit())?;
        match count_and_unit(self.window()) {
            (1, unit) => write!(f, "{unit}")?,
            (count, unit) => write!(f, "{count}{unit}")?,
        }
        match self.algorithm() {
            Algorithm::SlidingLog => {}
            algorithm => write!(f, " {algorithm}")?,
        }
        match self.lease().map(count_and_unit) {
            Some((count, unit)) => write!(f, " leased({count}{unit})"),
            None => Ok(()),
        }
    }
}

/// Returns the text between the parentheses of `leased(..)`.
fn lease_time(word: &str) -> Option<&str> {
    word.strip_prefix("leased(")?.strip_suffix(')')
}

/// Parses a number, which may be left out, and a unit.
fn duration(text: &str) -> Option<Duration> {
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let (count, unit) = text.split_at(digits);
    let count = if count.is_empty() { 1 } else { number(count)? };
    let (_, unit) = UNITS.iter().find(|(name, _)| *name == unit)?;
    Some(Duration::from_micros(count.saturating_mul(*unit)))
}

/// Returns the duration in the longest unit that divides it.
fn count_and_unit(duration: Duration) -> (u64, &'static str) {
    let micros = duration.as_micros() as u64;
    let (unit, length) = ["d", "h", "min", "s", "ms", "us"]
        .into_iter()
        .filter_map(|unit| UNITS.iter().find(|(name, _)| *name == unit))
        .find(|(_, length)| micros.is_multiple_of(*length))
        .unwrap_or(&UNITS[0]);
    (micros / length, unit)
}

/// Digits alone: `u64::from_str` would also take a sign.
fn number(digits: &str) -> Option<u64> {
    digits.bytes().all(|byte| byte.is_ascii_digit()).then(|| digits.parse().ok())?
}
