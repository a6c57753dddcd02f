//! The forms of numbers, durations and secrets.

use std::{fmt, time::Duration};

use serde::{Deserialize, Deserializer, Serialize, de::Error};

/// Reads a value. An error names what is allowed.
pub(crate) fn read<'de, T, D>(from: D, allowed: impl fmt::Display) -> Result<T, D::Error>
where
    T: Deserialize<'de>,
    D: Deserializer<'de>,
{
    let named = |error| D::Error::custom(format_args!("{error}; allowed is {allowed}"));
    T::deserialize(from).map_err(named)
}

/// Returns the error of a value that is not allowed.
pub(crate) fn invalid<E: Error>(value: impl fmt::Debug, allowed: impl fmt::Display) -> E {
    E::custom(format_args!("the value is {value:?}, allowed is {allowed}"))
}

/// Reads a whole number from `MIN` to `MAX`.
pub(crate) fn number<'de, const MIN: u64, const MAX: u64, T, D>(from: D) -> Result<T, D::Error>
where
    T: TryFrom<u64>,
    D: Deserializer<'de>,
{
    let allowed = format!("{MIN} to {MAX}");
    let number = read(from, &allowed)?;
    let number_in_range = Some(number).filter(|number| (MIN..=MAX).contains(number));
    let converted = number_in_range.and_then(|number| number.try_into().ok());
    converted.ok_or_else(|| invalid(number, allowed))
}

/// A duration as a text: a whole number and a unit.
pub(crate) mod duration {
    use std::time::Duration;

    use serde::{Deserializer, Serializer};

    pub(crate) fn serialize<S: Serializer>(value: &Duration, to: S) -> Result<S::Ok, S::Error> {
        to.collect_str(&super::DurationText(*value))
    }

    /// Reads a duration of up to 1 hour.
    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Duration, D::Error> {
        super::duration_from(from, Duration::ZERO, "0s to 1h")
    }
}

/// A duration from 1 ms to 1 hour as a text.
pub(crate) mod timeout {
    use std::time::Duration;

    use serde::Deserializer;

    pub(crate) use super::duration::serialize;

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Duration, D::Error> {
        super::duration_from(from, Duration::from_millis(1), "1ms to 1h")
    }
}

/// A duration from 1 ms to 1 hour as a type, for a setting that may be off.
#[derive(Serialize, Deserialize)]
#[serde(transparent)]
pub(crate) struct Timeout(#[serde(with = "timeout")] pub(crate) Duration);

fn duration_from<'de, D: Deserializer<'de>>(
    from: D,
    min: Duration,
    range: &str,
) -> Result<Duration, D::Error> {
    let allowed =
        format!("{range}, as a whole number and a unit (ns, us, ms, s, min, h, d), such as 50ms");
    let text: String = read(from, &allowed)?;
    let in_range = |duration: &Duration| (min..=Duration::from_secs(3_600)).contains(duration);
    parse_duration(&text).filter(in_range).ok_or_else(|| invalid(&text, allowed))
}

/// The units with their nanoseconds, the largest first.
const UNITS: [(&str, u128); 7] = [
    ("d", 86_400_000_000_000),
    ("h", 3_600_000_000_000),
    ("min", 60_000_000_000),
    ("s", 1_000_000_000),
    ("ms", 1_000_000),
    ("us", 1_000),
    ("ns", 1),
];

struct DurationText(Duration);

impl fmt::Display for DurationText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let nanos = self.0.as_nanos();
        if nanos == 0 {
            return f.write_str("0s");
        }
        let unit = UNITS.iter().find(|(_, unit)| nanos.is_multiple_of(*unit));
        let (name, unit) = unit.unwrap_or(&("ns", 1));
        write!(f, "{}{name}", nanos / unit)
    }
}

fn parse_duration(text: &str) -> Option<Duration> {
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let (count, name) = text.split_at(digits);
    let (_, unit) = UNITS.iter().find(|(unit, _)| *unit == name.trim_start())?;
    let nanos = count.parse::<u128>().ok()?.checked_mul(*unit)?;
    let seconds = u64::try_from(nanos / 1_000_000_000).ok()?;
    Some(Duration::new(seconds, (nanos % 1_000_000_000) as u32))
}

/// A secret of 128 bits. It is read from 32 hexadecimal digits, and serialized as `redacted`. Reading
/// `redacted` back is an error. No error contains the text that was read.
pub(crate) mod secret {
    use serde::{Deserialize, Deserializer, Serializer, de::Error};

    pub(crate) fn serialize<T, S: Serializer>(_: &T, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_str("redacted")
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<u128, D::Error> {
        deserialize_or(from, |_| None)
    }

    /// Reads a secret, or a text for which `named` knows one.
    pub(crate) fn deserialize_or<'de, D: Deserializer<'de>>(
        from: D,
        named: impl FnOnce(&str) -> Option<u128>,
    ) -> Result<u128, D::Error> {
        // The error of another type would name its value.
        let text = String::deserialize(from).ok();
        text.and_then(|text| named(&text).or_else(|| parse(&text))).ok_or_else(|| {
            D::Error::custom(
                "the value is not a secret; allowed is 32 hexadecimal digits as a text",
            )
        })
    }

    fn parse(text: &str) -> Option<u128> {
        let is_secret = text.len() == 32 && text.bytes().all(|byte| byte.is_ascii_hexdigit());
        if is_secret { u128::from_str_radix(text, 16).ok() } else { None }
    }
}

/// A secret as a type, for a setting that may be off.
#[derive(Serialize, Deserialize)]
#[serde(transparent)]
pub(crate) struct Secret(#[serde(with = "secret")] pub(crate) u128);

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::seed;

    #[test]
    fn the_text_of_a_duration_parses_back() {
        let config = ProptestConfig::with_cases(1_000);
        seed::property("duration text", config, any::<Duration>(), |duration| {
            prop_assert_eq!(parse_duration(&DurationText(duration).to_string()), Some(duration));
            Ok(())
        });
        for duration in [Duration::ZERO, Duration::MAX] {
            assert_eq!(parse_duration(&DurationText(duration).to_string()), Some(duration));
        }
    }

    #[test]
    fn units_and_what_is_not_a_duration() {
        for (text, nanos) in [("50ms", 50_000_000), ("2 min", 120_000_000_000), ("7us", 7_000)] {
            assert_eq!(parse_duration(text), Some(Duration::from_nanos(nanos)), "{text}");
        }
        for text in
            ["", "50", "ms", "1.5s", "-1s", "+1s", "1 fortnight", "1ms ", "999999999999999999d"]
        {
            assert_eq!(parse_duration(text), None, "{text}");
        }
        assert_eq!(DurationText(Duration::from_millis(1_500)).to_string(), "1500ms");
    }
}
