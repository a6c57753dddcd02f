//! Quotas as text: `100/min`, `5/10s sliding-counter`, `50/s token-bucket(20)`,
//! `60000/min leased(500ms)`, `20 concurrent expires(30s)`.

use std::{fmt, str::FromStr, time::Duration};

use super::{Algorithm, Quota};
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

/// The mistake in the text of a quota.
enum Mistake<'t> {
    /// A word that is wrong, the reason, and the word that was probably meant.
    Word { word: &'t str, why: &'static str, nearest: Option<String> },
    /// A value that is out of range.
    Value(Error),
}

impl<'t> Mistake<'t> {
    fn word(word: &'t str, why: &'static str) -> Self {
        Self::Word { word, why, nearest: None }
    }
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
                let meant = nearest.map(|nearest| with_word(text, word, &nearest));
                let meant = match meant.filter(|meant| parse(meant).is_ok()) {
                    Some(meant) => format!(" (did you mean {meant:?}?)"),
                    None => String::new(),
                };
                let message =
                    format!("quota is {text:?}, in which {word:?} {why}{meant}, allowed is {FORM}");
                Error::new(ErrorKind::Invalid, message)
            }
        })
    }
}

fn parse(text: &str) -> Result<Quota, Mistake<'_>> {
    let mut words = text.split_ascii_whitespace().peekable();
    let rate = words.next().unwrap_or_default();
    if words.next_if_eq(&CONCURRENT).is_some() {
        // The constructor checks the limit.
        let window = Quota::concurrent(1).window();
        let counted = Quota::new(limit(rate)?, window, Algorithm::SlidingLog)?;
        let quota = Quota::concurrent(counted.limit());
        let Some(word) = words.next() else { return Ok(quota) };
        let expiry = time_in(word, "expires(").ok_or(Mistake::word(word, "is not an expiry"))?;
        return match words.next() {
            Some(word) => Err(Mistake::word(word, "is a word too many")),
            None => Ok(quota.expires(expiry)?),
        };
    }
    let (units, window) = rate.split_once('/').ok_or(Mistake::word(rate, "is not LIMIT/WINDOW"))?;
    let units = limit(units)?;
    let length = duration(window).ok_or_else(|| {
        let (count, unit) = count_of(window);
        let nearest = nearest(unit, UNITS.map(|(name, _)| name));
        let nearest = nearest.map(|unit| format!("{count}{unit}"));
        Mistake::Word { word: window, why: "is not a window", nearest }
    })?;
    let algorithm = match words.next_if(|word| !word.starts_with("lease")) {
        Some(word) => Algorithm::from_text(word).ok_or_else(|| no_algorithm(word))?,
        None => Algorithm::default(),
    };
    let quota = Quota::new(units, length, algorithm)?;
    let Some(word) = words.next() else { return Ok(quota) };
    let lease = time_in(word, "leased(").ok_or(Mistake::word(word, "is not a lease"))?;
    match words.next() {
        Some(word) => Err(Mistake::word(word, "is a word too many")),
        None => Ok(quota.leased(lease)?),
    }
}

fn limit(word: &str) -> Result<u64, Mistake<'_>> {
    number(&word.replace('_', "")).ok_or(Mistake::word(word, "is not a limit"))
}

/// Returns why a word is not an algorithm with its parameter.
fn no_algorithm(word: &str) -> Mistake<'_> {
    let name = word.split('(').next().unwrap_or_default();
    let known = Algorithm::EACH.iter().find(|algorithm| algorithm.name() == name);
    if known.is_some_and(|algorithm| algorithm.to_string() != algorithm.name()) {
        return Mistake::word(word, "needs a number in parentheses that is in its range");
    }
    let names = Algorithm::EACH.iter().map(|algorithm| algorithm.name());
    let nearest = nearest(name, names).map(|nearest| word.replacen(name, nearest, 1));
    Mistake::Word { word, why: "is not an algorithm", nearest }
}

/// Returns the candidate that `word` is most likely to mean: the candidate with the fewest different letters,
/// if at most a third of them differ. The case of the letters and `_` for `-` make no difference. A word with a digit
/// is not likely to mean any: another text has to keep all digits.
fn nearest<'c>(word: &str, candidates: impl IntoIterator<Item = &'c str>) -> Option<&'c str> {
    if word.contains(|letter: char| letter.is_ascii_digit()) {
        return None;
    }
    let word = word.to_ascii_lowercase().replace('_', "-");
    let changes = candidates.into_iter().map(|other| (distance(&word, other), other));
    let near = changes
        .filter(|(changes, other)| *changes < other.len() && *changes <= (other.len() / 3).max(1));
    near.min_by_key(|(changes, _)| *changes).map(|(_, other)| other)
}

/// Returns the number of bytes to insert, remove or replace to turn one text into the other (Levenshtein).
fn distance(one: &str, other: &str) -> usize {
    let mut row: Vec<usize> = (0..=other.len()).collect();
    for (index, byte) in one.bytes().enumerate() {
        let mut diagonal = index;
        row[0] = index + 1;
        for (column, letter) in other.bytes().enumerate() {
            let replaced = diagonal + usize::from(byte != letter);
            diagonal = row[column + 1];
            row[column + 1] = replaced.min(diagonal + 1).min(row[column] + 1);
        }
    }
    row[other.len()]
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

/// Returns the time between the parentheses of `leased(..)` or `expires(..)`: a number and a unit.
fn time_in(word: &str, prefix: &str) -> Option<Duration> {
    let time = word.strip_prefix(prefix)?.strip_suffix(')')?;
    duration(time).filter(|_| time.starts_with(|first: char| first.is_ascii_digit()))
}

/// Returns a text with another word in the place of `word`, which is a part of the text.
fn with_word(text: &str, word: &str, other: &str) -> String {
    let start = word.as_ptr() as usize - text.as_ptr() as usize;
    [&text[..start], other, &text[start + word.len()..]].concat()
}

/// Splits a duration into its number, which may be left out, and its unit.
fn count_of(text: &str) -> (&str, &str) {
    text.split_at(text.bytes().take_while(u8::is_ascii_digit).count())
}

fn duration(text: &str) -> Option<Duration> {
    let (count, unit) = count_of(text);
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

impl From<Quota> for String {
    fn from(quota: Quota) -> Self {
        quota.to_string()
    }
}

impl From<Algorithm> for String {
    fn from(algorithm: Algorithm) -> Self {
        algorithm.to_string()
    }
}

/// Reads the name of an algorithm, with its parameter in parentheses.
impl TryFrom<String> for Algorithm {
    type Error = Error;

    fn try_from(text: String) -> Result<Self, Error> {
        let allowed = Self::NAMES.trim_end_matches(", ");
        Self::from_text(&text).ok_or_else(|| Error::invalid("algorithm", text, allowed))
    }
}

#[cfg(test)]
mod tests {
    use plimsoll_testing::seed;
    use proptest::prelude::*;

    use super::*;

    const NAMES: &[&str] =
        &["sliding-log", "sliding-buckets", "sliding-counter", "token-bucket", "fixed-window"];

    /// Returns the distance by its definition: the shortest of all ways.
    fn shortest(one: &[u8], other: &[u8]) -> usize {
        let (([first, one_rest @ ..], [second, other_rest @ ..]), true) =
            ((one, other), !one.is_empty() && !other.is_empty())
        else {
            return one.len() + other.len();
        };
        let replaced = shortest(one_rest, other_rest) + usize::from(first != second);
        replaced.min(1 + shortest(one_rest, other)).min(1 + shortest(one, other_rest))
    }

    #[test]
    fn a_distance_is_the_number_of_changes_of_the_shortest_way() {
        let name = "a_distance_is_the_number_of_changes_of_the_shortest_way";
        let words = ("[a-c]{0,5}", "[a-c]{0,5}");
        seed::property(name, ProptestConfig::with_cases(500), words, |(one, other)| {
            prop_assert_eq!(distance(&one, &other), shortest(one.as_bytes(), other.as_bytes()));
            Ok(())
        });
    }

    #[test]
    fn a_name_is_found_if_at_most_a_third_of_its_letters_are_wrong() {
        assert_eq!(nearest("xxxing-xxx", ["sliding-log"]), None);
        for name in NAMES {
            for wrong in 0..name.len() {
                let word = format!("{}{}", "?".repeat(wrong), &name[wrong..]);
                let expected = (wrong <= name.len() / 3).then_some(*name);
                assert_eq!(nearest(&word, NAMES.iter().copied()), expected, "{word}");
            }
        }
    }

    #[test]
    fn short_words_are_found_only_if_something_of_them_is_right() {
        let units = ["s", "ms", "min", "hour"];
        for (word, unit) in
            [("S", Some("s")), ("mz", Some("ms")), ("mim", Some("min")), ("x", None)]
        {
            assert_eq!(nearest(word, units), unit, "{word}");
        }
        assert_eq!(nearest("our", units), Some("hour"));
    }
}
