//! The values of settings: addresses, times, sizes and choices.

use std::{
    fmt,
    net::{SocketAddr, ToSocketAddrs},
    str::FromStr,
    time::Duration,
};

use serde::{
    Deserialize, Deserializer,
    de::{DeserializeOwned, Error, IntoDeserializer, value},
};

/// The address of a listener, or that there is none.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Address {
    /// The listener is not opened.
    Off,
    /// The listener is opened here.
    At(SocketAddr),
}

/// A time of at most a day, such as `500ms`, `10s` or `5min`, and of at least so many milliseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Time<const LEAST: u64>(pub(super) Duration);

/// A number of bytes up to 16 MiB, such as `4096`, `64KiB` or `1MiB`, and of at least so many.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Bytes<const LEAST: usize>(pub(super) usize);

const DAY: Duration = Duration::from_secs(24 * 60 * 60);

const MAX_BYTES: usize = 16 * 1_024 * 1_024;

/// The format of the log.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum LogFormat {
    /// A line of text for each event.
    #[default]
    Text,
    /// A JSON object on a line for each event.
    Json,
}

/// Returns the value that has this name in files too.
pub(super) fn named<T: DeserializeOwned>(text: &str) -> Result<T, String> {
    let value: value::StrDeserializer<'_, value::Error> = text.into_deserializer();
    T::deserialize(value).map_err(|error| error.to_string())
}

impl FromStr for Address {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text == "off" {
            return Ok(Self::Off);
        }
        let allowed = "an address such as 127.0.0.1:8080, [::1]:8080 or localhost:8080, or off";
        let mut found =
            text.to_socket_addrs().map_err(|_| format!("found {text:?}, allowed is {allowed}"))?;
        found.next().map(Self::At).ok_or_else(|| format!("{text:?} has no address"))
    }
}

impl<const LEAST: u64> FromStr for Time<LEAST> {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let least = Duration::from_millis(LEAST);
        let time = humantime::parse_duration(text).ok();
        time.filter(|time| (least..=DAY).contains(time)).map(Self).ok_or_else(|| {
            format!("found {text:?}, allowed is {least:?} to 24h, such as 500ms or 10s")
        })
    }
}

impl<const LEAST: usize> FromStr for Bytes<LEAST> {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let end = text.find(|letter: char| !letter.is_ascii_digit()).unwrap_or(text.len());
        let (number, unit) = text.split_at(end);
        let factor = match unit.trim() {
            "" | "B" => Some(1),
            "KiB" => Some(1_024),
            "MiB" => Some(1_024 * 1_024),
            _ => None,
        };
        let bytes = factor.zip(number.parse::<usize>().ok());
        bytes
            .and_then(|(factor, number)| number.checked_mul(factor))
            .filter(|bytes| (LEAST..=MAX_BYTES).contains(bytes))
            .map(Self)
            .ok_or_else(|| {
                format!("found {text:?}, allowed is {LEAST} to 16MiB, such as 65536 or 64KiB")
            })
    }
}

/// Implements `Deserialize` from a text.
macro_rules! deserialize_by_text {
    ($([$($least:tt)*] $type:ty),+) => {
        $(impl<'de, $($least)*> Deserialize<'de> for $type {
            fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
                String::deserialize(from)?.parse().map_err(D::Error::custom)
            }
        })+
    };
}

deserialize_by_text!([] Address, [const LEAST: u64] Time<LEAST>, [const LEAST: usize] Bytes<LEAST>);

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Off => f.write_str("off"),
            Self::At(address) => address.fmt(f),
        }
    }
}

#[cfg(test)]
mod tests {
    use plimsoll::{Algorithm, OnFailure};

    use super::*;
    use crate::envoy::Decide;

    #[test]
    fn a_wrong_value_says_what_is_allowed() {
        let error = |text: &str| text.parse::<Bytes<0>>().unwrap_err();
        for text in ["", "KiB", "64KB", "-1", "99999999999999999999", "18446744073709551615MiB"] {
            assert!(error(text).contains("64KiB"), "{text}");
        }
        assert_eq!("64KiB".parse(), Ok(Bytes::<1_024>(65_536)));
        assert!("1".parse::<Bytes<1_024>>().unwrap_err().contains("1024 to 16MiB"));
        assert!("17MiB".parse::<Bytes<0>>().unwrap_err().contains("0 to 16MiB"));
        assert_eq!("10s".parse(), Ok(Time::<10>(Duration::from_secs(10))));
        assert_eq!("0s".parse(), Ok(Time::<0>(Duration::ZERO)));
        for wrong in ["10", "9ms", "25h"] {
            assert!(wrong.parse::<Time<10>>().unwrap_err().contains("10ms to 24h"), "{wrong}");
        }
        assert_eq!("off".parse(), Ok(Address::Off));
        assert!("8080".parse::<Address>().unwrap_err().contains("127.0.0.1:8080"));
        assert_eq!(named("deny"), Ok(OnFailure::Deny));
        assert_eq!(named("each"), Ok(Decide::Each));
        assert!(named::<Decide>("all").unwrap_err().contains("together"));
        assert_eq!(named("sliding-buckets(60)"), Ok(Algorithm::SlidingBuckets(60)));
        assert!(named::<Algorithm>("leaky").unwrap_err().contains("token-bucket"));
        assert!(named::<LogFormat>("xml").unwrap_err().contains("json"));
    }
}
