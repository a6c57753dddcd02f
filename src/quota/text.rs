//! Quotas as text: `100/min`, `5/10s sliding-counter`, `50/s token-bucket(20)`,
//! `60000/min leased(500ms)`, `20 concurrent expires(30s)`.

use std::{fmt, str::FromStr, time::Duration};

use super::{
    Algorithm, Quota,
    nearest::{nearest, nearest_algorithm, why_not},
};
use crate::error::{Error, ErrorKind};

const FORM: &str = "LIMIT/WINDOW [ALGORITHM] [leased(TIME)], such as 100/min, 5/10s, \
                    1000/day sliding-buckets(24), 50/s token-bucket(20), 60000/min leased(500ms), \
                    or LIMIT concurrent [expires(TIME)], such as 20 concurrent expires(30s)";

/// The word behind the limit of a concurrency limit.
const CONCURRENT: &str = "concurrent";

const UNITS: [(&str, u64); 19] = [
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
    ("week", 604_800_000_000),
    ("weeks", 604_800_000_000),
];

/// The most words that are wrong in a text for which there is a right spelling.
const MAX_WRONG: usize = 4;

/// The mistake in the text of a quota.
enum Mistake<'t> {
    /// A word that is wrong, the reason, and the text with the word that was probably meant.
    Word { word: &'t str, why: &'static str, nearest: Option<String> },
    /// A value that is out of range.
    Value(Error),
}

impl From<Error> for Mistake<'_> {
    fn from(error: Error) -> Self {
        Self::Value(error)
    }
}

impl FromStr for Quota {
    type Err = Error;

    /// Reads `LIMIT/WINDOW [ALGORITHM] [leased(TIME)]`. The window is a number (1 if left out) and one
    /// of `us`, `ms`, `s`, `m` or `min`, `h`, `d` or `day`, `w` or `week`; long names work too. The limit may be
    /// grouped with `_`. Without an algorithm it is `sliding-log`. The time of a lease is written like
    /// a window, with its number.
    ///
    /// A [concurrency limit](Quota::concurrent) is `LIMIT concurrent [expires(TIME)]`.
    fn from_str(text: &str) -> Result<Self, Error> {
        parse(text).map_err(|mistake| match mistake {
            Mistake::Value(error) => error,
            Mistake::Word { word, why, nearest } => {
                // Without a digit of the text, it would mean another quota.
                let digits = |text: &str| text.replace(|it: char| !it.is_ascii_digit(), "");
                let is_same = |nearest: &String| digits(nearest) == digits(text);
                let nearest = nearest.and_then(valid).filter(|it| it != text && is_same(it));
                let nearest = nearest.map(|nearest| format!(" (did you mean {nearest:?}?)"));
                let nearest = nearest.unwrap_or_default();
                let message = format!(
                    "quota is {text:?}, in which {word:?} {why}{nearest}, allowed is {FORM}"
                );
                Error::new(ErrorKind::Invalid, message)
            }
        })
    }
}

/// Returns a text in which each word that is wrong is replaced by the nearest right one, if that is a quota.
fn valid(mut text: String) -> Option<String> {
    for _ in 0..MAX_WRONG {
        text = match parse(&text) {
            Ok(_) => return Some(text),
            Err(Mistake::Word { nearest, .. }) => nearest?,
            Err(Mistake::Value(_)) => return None,
        };
    }
    None
}

fn parse(text: &str) -> Result<Quota, Mistake<'_>> {
    let wrong = |word, why, nearest: Option<String>| {
        let nearest = nearest.map(|nearest| with_word(text, word, &nearest));
        Mistake::Word { word, why, nearest }
    };
    let mut words = text.split_ascii_whitespace().peekable();
    let rate = words.next().unwrap_or_default();
    let units = |limit| {
        number(&without(limit, '_'))
            .ok_or_else(|| wrong(limit, "is not a limit", without_separators(limit)))
    };
    if words.next_if_eq(&CONCURRENT).is_some() {
        // The constructor checks the limit.
        let quota = Quota::new(units(rate)?, Quota::concurrent(1).window())?;
        let quota = Quota::concurrent(quota.limit());
        let Some(word) = words.next() else { return Ok(quota) };
        let expiry = time_in(word, "expires(").and_then(counted_duration);
        let nearest = || nearest_time(word, "expires", "s");
        let expiry = expiry.ok_or_else(|| wrong(word, "is not an expiry", nearest()))?;
        return match words.next() {
            Some(word) => Err(wrong(word, "is a word too many", None)),
            None => Ok(quota.expires(expiry)?),
        };
    }
    let (limit, window) = rate.split_once('/').ok_or_else(|| Mistake::Word {
        word: rate,
        why: "is not LIMIT/WINDOW",
        nearest: Some(in_one_word(text)),
    })?;
    let units = units(limit)?;
    let length = duration(window)
        .ok_or_else(|| wrong(window, "is not a window", nearest_duration(window)))?;
    let algorithm = match words.next_if(|word| !word.starts_with("lease")) {
        Some(name) => Algorithm::from_text(name)
            .ok_or_else(|| wrong(name, why_not(name), nearest_algorithm(name)))?,
        None => Algorithm::default(),
    };
    let quota = Quota::new_with_algorithm(units, length, algorithm)?;
    let Some(word) = words.next() else { return Ok(quota) };
    let lease = time_in(word, "leased(").and_then(counted_duration);
    let nearest = || nearest_time(word, "leased", "ms");
    let lease = lease.ok_or_else(|| wrong(word, "is not a lease", nearest()))?;
    match words.next() {
        Some(word) => Err(wrong(word, "is a word too many", None)),
        None => Ok(quota.leased(lease)?),
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

/// Returns a text with another word in the place of `word`, which is a part of the text.
fn with_word(text: &str, word: &str, other: &str) -> String {
    let start = word.as_ptr() as usize - text.as_ptr() as usize;
    [&text[..start], other, &text[start + word.len()..]].concat()
}

/// Returns the text with a rate in one word: `100 / min`, `100 per min`.
fn in_one_word(text: &str) -> String {
    let words: Vec<_> = text.split_ascii_whitespace().collect();
    let word = words.join(" ").replace(" per ", "/").replace(" / ", "/").replace(" /", "/");
    word.replace("/ ", "/")
}

fn without(limit: &str, separator: char) -> String {
    limit.replace(separator, "")
}

/// Returns a number without the separators of thousands that people write. A point may belong to a decimal.
fn without_separators(limit: &str) -> Option<String> {
    let separator = limit.chars().find(|it| matches!(it, ',' | '\''))?;
    let mut groups = limit.split(separator);
    let is_first = groups.next().is_some_and(|first| (1..=3).contains(&first.len()));
    (is_first && groups.all(|group| group.len() == 3)).then(|| without(limit, separator))
}

/// Returns the right spelling of a window.
fn nearest_duration(window: &str) -> Option<String> {
    let digits = window.bytes().take_while(u8::is_ascii_digit).count();
    let (count, unit) = window.split_at(digits);
    let nearest = nearest(unit, &UNITS.map(|(name, _)| name))?;
    Some(format!("{count}{nearest}"))
}

/// Returns the right spelling of a lease or an expiry. A number alone gets the unit.
fn nearest_time(word: &str, name: &str, unit: &str) -> Option<String> {
    let (_, time) = word.split_once('(')?;
    let time = time.trim_end_matches(')');
    let time = match number(time) {
        Some(_) => format!("{time}{unit}"),
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
