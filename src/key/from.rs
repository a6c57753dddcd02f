//! Conversions into keys.

use std::net::IpAddr;

use http::HeaderValue;

use super::key::{Key, Kind};

impl From<&[u8]> for Key {
    #[inline]
    fn from(bytes: &[u8]) -> Self {
        Self::new(bytes)
    }
}

impl From<&str> for Key {
    #[inline]
    fn from(text: &str) -> Self {
        Self::new(text.as_bytes())
    }
}

impl From<&String> for Key {
    #[inline]
    fn from(text: &String) -> Self {
        Self::new(text.as_bytes())
    }
}

impl From<String> for Key {
    #[inline]
    fn from(text: String) -> Self {
        Self::new(text.as_bytes())
    }
}

impl From<&HeaderValue> for Key {
    #[inline]
    fn from(value: &HeaderValue) -> Self {
        Self::new(value.as_bytes())
    }
}

impl From<u64> for Key {
    /// Creates a key that differs from the key of any text.
    #[inline]
    fn from(number: u64) -> Self {
        let mut text = *b"\0n________";
        text[2..].copy_from_slice(&number.to_be_bytes());
        Self::of(Kind::Plain, &text)
    }
}

impl From<IpAddr> for Key {
    /// Creates a key from the canonical form of the address, in which an IPv4-mapped IPv6 address is
    /// IPv4. It differs from the key of any text.
    fn from(address: IpAddr) -> Self {
        let mut text = *b"\0a________________";
        let octets = &mut text[2..];
        match address.to_canonical() {
            IpAddr::V4(v4) => {
                octets[..4].copy_from_slice(&v4.octets());
                Self::of(Kind::Plain, &text[..6])
            }
            IpAddr::V6(v6) => {
                octets.copy_from_slice(&v6.octets());
                Self::of(Kind::Plain, &text)
            }
        }
    }
}

impl From<&Key> for Key {
    #[inline]
    fn from(key: &Key) -> Self {
        *key
    }
}
