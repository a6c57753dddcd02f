//! Durations as text: `50ms`.

use std::{fmt, time::Duration};

use serde_core::{
    Deserialize, Deserializer, Serialize, Serializer,
    de::{Error, Unexpected, Visitor},
};

use super::Form;

const FORM: &str = "a whole number and a unit (ns, us, ms, s, min, h, d), such as 50ms";

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

/// A duration, serialized as a whole number and a unit.
pub(crate) struct DurationText(Duration);

impl Form for DurationText {
    type Value = Duration;

    fn of(value: &Duration) -> Self {
        Self(*value)
    }

    fn into_value(self) -> Duration {
        self.0
    }
}

impl Serialize for DurationText {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

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

impl<'de> Deserialize<'de> for DurationText {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct DurationVisitor;
        impl Visitor<'_> for DurationVisitor {
            type Value = DurationText;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(FORM)
            }

            fn visit_str<E: Error>(self, text: &str) -> Result<DurationText, E> {
                let parsed = parse(text).map(DurationText);
                parsed.ok_or_else(|| E::invalid_value(Unexpected::Str(text), &self))
            }
        }
        deserializer.deserialize_str(DurationVisitor)
    }
}

fn parse(text: &str) -> Option<Duration> {
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let (count, name) = text.split_at(digits);
    let (_, unit) = UNITS.iter().find(|(unit, _)| *unit == name.trim_start())?;
    let nanos = count.parse::<u128>().ok()?.checked_mul(*unit)?;
    let seconds = u64::try_from(nanos / 1_000_000_000).ok()?;
    Some(Duration::new(seconds, (nanos % 1_000_000_000) as u32))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::seed;

    #[test]
    fn the_text_of_a_duration_parses_back() {
        let config = ProptestConfig::with_cases(1_000);
        seed::property("duration text", config, any::<Duration>(), |duration| {
            prop_assert_eq!(parse(&DurationText(duration).to_string()), Some(duration));
            Ok(())
        });
        for duration in [Duration::ZERO, Duration::MAX] {
            assert_eq!(parse(&DurationText(duration).to_string()), Some(duration));
        }
    }

    #[test]
    fn units_and_what_is_not_a_duration() {
        for (text, nanos) in [("50ms", 50_000_000), ("2 min", 120_000_000_000), ("7us", 7_000)] {
            assert_eq!(parse(text), Some(Duration::from_nanos(nanos)), "{text}");
        }
        for text in
            ["", "50", "ms", "1.5s", "-1s", "+1s", "1 fortnight", "1ms ", "999999999999999999d"]
        {
            assert_eq!(parse(text), None, "{text}");
        }
        assert_eq!(DurationText(Duration::from_millis(1_500)).to_string(), "1500ms");
    }
}
