//! The values of settings: addresses, times and choices.

use std::{
    net::{Ipv4Addr, SocketAddr, ToSocketAddrs},
    str::FromStr,
    time::Duration,
};

use serde::{
    Deserialize, Deserializer,
    de::{DeserializeOwned, Error, IntoDeserializer, value},
};

/// The address of a listener, or [`Off`](Self::Off) if there is none.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Address {
    /// The listener is not opened.
    Off,
    /// The listener is opened here.
    At(SocketAddr),
}

/// A time of at least `LEAST` milliseconds and at most a day, such as `500ms`, `10s` or `5min`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Time<const LEAST: u64>(pub(super) Duration);

const DAY: Duration = Duration::from_secs(24 * 60 * 60);

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

impl Address {
    pub(super) fn loopback(port: u16) -> Self {
        Self::At(SocketAddr::from((Ipv4Addr::LOCALHOST, port)))
    }
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

deserialize_by_text!([] Address, [const LEAST: u64] Time<LEAST>);

#[cfg(test)]
mod tests {
    use plimsoll::{Algorithm, OnFailure};

    use super::*;
    use crate::envoy::Decide;

    #[test]
    fn a_wrong_value_says_what_is_allowed() {
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
