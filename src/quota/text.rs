//! Quotas as text: `100/min`, `5/10s sliding-counter`, `50/s token-bucket(20)`.

use std::{fmt, str::FromStr, time::Duration};

use super::Quota;
use crate::{error::Error, quota::Algorithm};

const FORM: &str = "LIMIT/WINDOW [ALGORITHM], such as 100/min, 5/10s, 1000/day sliding-buckets(24), \
                    50/s token-bucket(20)";

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

    /// Reads `LIMIT/WINDOW [ALGORITHM]`. The window is a number (1 if left out) and one of `us`,
    /// `ms`, `s`, `m` or `min`, `h`, `d` or `day`, `w`; long names work too. The limit may be
    /// grouped with `_`. Without an algorithm it is `sliding-log`.
    fn from_str(text: &str) -> Result<Self, Error> {
        let wrong = || Error::invalid("quota", text, FORM);
        let mut words = text.split_ascii_whitespace();
        let (limit, window) =
            words.next().and_then(|rate| rate.split_once('/')).ok_or_else(wrong)?;
        let algorithm = match words.next() {
            Some(name) => Algorithm::from_text(name).ok_or_else(wrong)?,
            None => Algorithm::SlidingLog,
        };
        if words.next().is_some() {
            return Err(wrong());
        }
        let limit = number(&limit.replace('_', "")).ok_or_else(wrong)?;
        let digits = window.bytes().take_while(u8::is_ascii_digit).count();
        let (count, unit) = window.split_at(digits);
        let count = if count.is_empty() { 1 } else { number(count).ok_or_else(wrong)? };
        let (_, unit) = UNITS.iter().find(|(name, _)| *name == unit).ok_or_else(wrong)?;
        let window = Duration::from_micros(count.saturating_mul(*unit));
        Self::new_with_algorithm(limit, window, algorithm)
    }
}

impl fmt::Display for Quota {
    /// The text that parses back to this quota.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (unit, micros) = ["d", "h", "min", "s", "ms", "us"]
            .into_iter()
            .filter_map(|unit| UNITS.iter().find(|(name, _)| *name == unit))
            .find(|(_, micros)| self.window_micros().is_multiple_of(*micros))
            .unwrap_or(&UNITS[0]);
        write!(f, "{}/", self.limit())?;
        match self.window_micros() / micros {
            1 => write!(f, "{unit}")?,
            count => write!(f, "{count}{unit}")?,
        }
        match self.algorithm() {
            Algorithm::SlidingLog => Ok(()),
            algorithm => write!(f, " {algorithm}"),
        }
    }
}

/// Digits alone: `u64::from_str` would also take a sign.
fn number(digits: &str) -> Option<u64> {
    digits.bytes().all(|byte| byte.is_ascii_digit()).then(|| digits.parse().ok())?
}
