//! Quotas as text: `100/min`, `5/10s sliding-counter`, `50/s token-bucket(20)`,
//! `60000/min leased(500ms)`, `20 concurrent expires(30s)`.

use std::{fmt, str::FromStr, time::Duration};

use super::{
    Algorithm, Quota,
    nearest::{nearest, nearest_algorithm},
};
use crate::error::{Error, ErrorKind};

const FORM: &str = "LIMIT/WINDOW [ALGORITHM] [leased(TIME)], such as 100/min, 5/10s, \
                    1000/day sliding-buckets(24), 50/s token-bucket(20), 60000/min leased(500ms), \
                    or LIMIT concurrent [expires(TIME)], such as 20 concurrent expires(30s)";

/// The word behind the limit of a concurrency limit.
const CONCURRENT: &str = "concurrent";

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
    ///
    /// A [concurrency limit](Quota::concurrent) is `LIMIT concurrent [expires(TIME)]`.
    fn from_str(text: &str) -> Result<Self, Error> {
        let wrong = |word: &str, why: &str, nearest: Option<String>| {
            let nearest = nearest.map(|nearest| format!(" (did you mean {nearest:?}?)"));
            let nearest = nearest.unwrap_or_default();
            let message =
                format!("quota is {text:?}, in which {word:?} {why}{nearest}, allowed is {FORM}");
            Error::new(ErrorKind::Invalid, message)
        };
        let mut words = text.split_ascii_whitespace().peekable();
        let rate = words.next().unwrap_or_default();
        let units = |limit: &str| {
            number(&limit.replace('_', ""))
                .ok_or_else(|| wrong(limit, "is not a limit", without_separators(limit)))
        };
        if words.next_if_eq(&CONCURRENT).is_some() {
            // The constructor checks the limit.
            let quota = Self::new(units(rate)?, Self::concurrent(1).window())?;
            let quota = Self::concurrent(quota.limit());
            let Some(word) = words.next() else { return Ok(quota) };
            let expiry = time_in(word, "expires(").and_then(counted_duration);
            let expiry = expiry
                .ok_or_else(|| wrong(word, "is not an expiry", nearest_time(word, "expires")))?;
            return match words.next() {
                Some(word) => Err(wrong(word, "is a word too many", None)),
                None => quota.expires(expiry),
            };
        }
        let (limit, window) = rate
            .split_once('/')
            .ok_or_else(|| wrong(rate, "is not LIMIT/WINDOW", in_one_word(text)))?;
        let units = units(limit)?;
        let length = duration(window)
            .ok_or_else(|| wrong(window, "is not a window", nearest_duration(window)))?;
        let algorithm = match words.next_if(|word| !word.starts_with("lease")) {
            Some(name) => Algorithm::from_text(name)
                .ok_or_else(|| wrong(name, "is not an algorithm", nearest_algorithm(name)))?,
            None => Algorithm::default(),
        };
        let quota = Self::new_with_algorithm(units, length, algorithm)?;
        let Some(word) = words.next() else { return Ok(quota) };
        let lease = time_in(word, "leased(").and_then(counted_duration);
        let lease =
            lease.ok_or_else(|| wrong(word, "is not a lease", nearest_time(word, "leased")))?;
        match words.next() {
            Some(word) => Err(wrong(word, "is a word too many", None)),
            None => quota.leased(lease),
        }
    }
}

/// Reads the text of a quota, for [`Policy::new`](crate::Policy::new).
impl TryFrom<&str> for Quota {
    type Error = Error;

    fn try_from(text: &str) -> Result<Self, Error> {
        text.parse()
    }
}

/// Reads the text of a quota, for [`Policy::new`](crate::Policy::new).
impl TryFrom<&String> for Quota {
    type Error = Error;

    fn try_from(text: &String) -> Result<Self, Error> {
        text.parse()
    }
}

/// Reads the text of a quota, for [`Policy::new`](crate::Policy::new).
impl TryFrom<String> for Quota {
    type Error = Error;

    fn try_from(text: String) -> Result<Self, Error> {
        text.parse()
    }
}

impl fmt::Display for Quota {
    /// Writes the text that parses to the same quota.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_concurrent() {
            let (count, unit) = count_and_unit(self.window());
            return write!(f, "{} {CONCURRENT} expires({count}{unit})", self.limit());
        }
        write!(f, "{}/", self.limit())?;
        match count_and_unit(self.window()) {
            (1, unit) => write!(f, "{unit}")?,
            (count, unit) => write!(f, "{count}{unit}")?,
        }
        if self.algorithm() != Algorithm::default() {
            write!(f, " {}", self.algorithm())?;
        }
        match self.lease().map(count_and_unit) {
            Some((count, unit)) => write!(f, " leased({count}{unit})"),
            None => Ok(()),
        }
    }
}

/// Returns the text between the parentheses of `leased(..)` or `expires(..)`.
fn time_in<'w>(word: &'w str, prefix: &str) -> Option<&'w str> {
    word.strip_prefix(prefix)?.strip_suffix(')')
}

/// Returns the text with a rate in one word, if it is then right: `100 / min`, `100 per min`.
fn in_one_word(text: &str) -> Option<String> {
    let words: Vec<_> = text.split_ascii_whitespace().collect();
    let word = words.join(" ").replace(" per ", "/").replace(" / ", "/").replace(" /", "/");
    let word = word.replace("/ ", "/");
    (word != text && word.parse::<Quota>().is_ok()).then_some(word)
}

/// Returns a number without the separators of thousands that people write.
fn without_separators(limit: &str) -> Option<String> {
    let digits = limit.replace([',', '.', '\''], "");
    number(&digits).is_some_and(|number| number > 0).then_some(digits)
}

/// Returns the right spelling of a window.
fn nearest_duration(window: &str) -> Option<String> {
    let digits = window.bytes().take_while(u8::is_ascii_digit).count();
    let (count, unit) = window.split_at(digits);
    let nearest = nearest(unit, &UNITS.map(|(name, _)| name))?;
    Some(format!("{count}{nearest}"))
}

/// Returns the right spelling of a lease or an expiry.
fn nearest_time(word: &str, name: &str) -> Option<String> {
    let (_, time) = word.split_once('(')?;
    let time = time.trim_end_matches(')');
    let time = match number(time) {
        Some(_) => format!("{time}ms"),
        None => time.to_owned(),
    };
    counted_duration(&time).map(|_| format!("{name}({time})"))
}

/// Parses a number and a unit.
fn counted_duration(text: &str) -> Option<Duration> {
    text.starts_with(|first: char| first.is_ascii_digit()).then(|| duration(text))?
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

/// Quotas and algorithms as serialized data.
#[cfg(feature = "serde")]
mod serialized {
    use serde::{Deserialize, Deserializer, Serialize, Serializer, de::Error as _};

    use super::{Algorithm, Error, Quota};

    const ALGORITHMS: &str = "sliding-log, sliding-buckets(N), sliding-counter, \
                              token-bucket(BURST), fixed-window";

    impl Serialize for Quota {
        fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
            to.collect_str(self)
        }
    }

    impl<'de> Deserialize<'de> for Quota {
        fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
            String::deserialize(from)?.parse().map_err(D::Error::custom)
        }
    }

    impl Serialize for Algorithm {
        fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
            to.collect_str(self)
        }
    }

    impl<'de> Deserialize<'de> for Algorithm {
        fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
            let text = String::deserialize(from)?;
            Self::from_text(&text)
                .ok_or_else(|| D::Error::custom(Error::invalid("algorithm", text, ALGORITHMS)))
        }
    }
}
