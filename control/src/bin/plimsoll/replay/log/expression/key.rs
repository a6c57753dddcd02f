//! The key of a request, and its cost.

use std::{
    fmt,
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
    str::FromStr,
};

use plimsoll::Key;

use super::{super::Entry, ExpressionError, value::Value};

/// The key of a request: `ip`, `ip/24`, `header:x-api-key`, `field:user`, `method`, `host`, `path`, `all`, or up to four
/// of these with `+` between them: `ip+path`.
///
/// It is the key that a rule of a service charges for the same request: IPv6 addresses with the same first 64 bits have
/// one key. `ip/24` makes one key of an IPv4 network, and `ip/48` of an IPv6 network.
#[derive(Debug, Clone)]
pub(crate) struct KeyExpression(Vec<Part>);

/// A part of a key.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Part {
    /// The network of the address, with so many bits of IPv4 and of IPv6.
    Network {
        v4_bits: u32,
        v6_bits: u32,
    },
    /// One key for all requests.
    All,
    Value(Value),
}

/// The most parts, as many as a [`Key`] can have.
const MAX_PARTS: usize = 4;

/// The cost of a request: a number, `bytes`, `field:NAME` or `header:NAME`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum CostExpression {
    /// The same cost for each request.
    Fixed(u64),
    /// A number of the request.
    Value(RequestNumber),
}

/// A value of a request that is a number.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct RequestNumber(Value);

impl KeyExpression {
    /// Returns the key that a rule of a service charges for this request, or `None` if the request lacks a part of it.
    pub(crate) fn key(&self, entry: &Entry) -> Option<Key> {
        Some(match &self.0[..] {
            [a] => a.key(entry)?,
            [a, b] => Key::from((a.key(entry)?, b.key(entry)?)),
            [a, b, c] => Key::from((a.key(entry)?, b.key(entry)?, c.key(entry)?)),
            [a, b, c, d] => Key::from((a.key(entry)?, b.key(entry)?, c.key(entry)?, d.key(entry)?)),
            _ => return None,
        })
    }
}

impl Part {
    const ALLOWED: &str = "ip, ip/8 to ip/32 for networks of IPv4, ip/33 to ip/64 for networks of IPv6, method, host, \
                           path, target, header:NAME, field:NAME, all, or up to four of these as in ip+path";

    fn key(&self, entry: &Entry) -> Option<Key> {
        match self {
            Self::Network { v4_bits, v6_bits } => {
                entry.ip().map(|ip| Key::from(network(ip, *v4_bits, *v6_bits)))
            }
            Self::All => Some(Key::ANONYMOUS),
            Self::Value(value) => value.text(entry).map(|text| Key::from(&*text)),
        }
    }

    fn parse(text: &str) -> Option<Self> {
        if text == "all" {
            return Some(Self::All);
        }
        if let Some(bits) = text.strip_prefix("ip/") {
            return match bits.parse().ok()? {
                bits @ 8..=32 => Some(Self::Network { v4_bits: bits, v6_bits: 64 }),
                bits @ 33..=64 => Some(Self::Network { v4_bits: 32, v6_bits: bits }),
                _ => None,
            };
        }
        match text.parse().ok()? {
            Value::Ip => Some(Self::Network { v4_bits: 32, v6_bits: 64 }),
            value => Some(Self::Value(value)),
        }
    }
}

/// Returns the first address of the network of an address.
pub(super) fn network(ip: IpAddr, v4_bits: u32, v6_bits: u32) -> IpAddr {
    match ip {
        IpAddr::V4(ip) => {
            let mask = u32::MAX.checked_shl(32 - v4_bits).unwrap_or(0);
            Ipv4Addr::from_bits(ip.to_bits() & mask).into()
        }
        IpAddr::V6(ip) => {
            let mask = u128::MAX.checked_shl(128 - v6_bits).unwrap_or(0);
            Ipv6Addr::from_bits(ip.to_bits() & mask).into()
        }
    }
}

impl FromStr for KeyExpression {
    type Err = ExpressionError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let parts: Vec<&str> = text.split('+').map(str::trim).collect();
        if parts.len() > MAX_PARTS {
            let count = parts.len();
            let allowed = Part::ALLOWED;
            return Err(ExpressionError(format!(
                "the key has {count} parts; allowed is {allowed}"
            )));
        }
        let parts = parts.into_iter().map(|part| {
            Part::parse(part).ok_or_else(|| {
                let allowed = Part::ALLOWED;
                ExpressionError(format!(
                    "{part:?} in the key {text:?} is no key; allowed is {allowed}"
                ))
            })
        });
        parts.collect::<Result<_, _>>().map(Self)
    }
}

impl fmt::Display for KeyExpression {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, part) in self.0.iter().enumerate() {
            let plus = if at > 0 { "+" } else { "" };
            match part {
                Part::Network { v4_bits: 32, v6_bits: 64 } => write!(f, "{plus}ip")?,
                Part::Network { v4_bits: 32, v6_bits: bits }
                | Part::Network { v4_bits: bits, .. } => write!(f, "{plus}ip/{bits}")?,
                Part::All => write!(f, "{plus}all")?,
                Part::Value(value) => write!(f, "{plus}{value}")?,
            }
        }
        Ok(())
    }
}

impl CostExpression {
    /// Returns the cost in units, or `None` if the request has no such field, or no whole number in it.
    pub(crate) fn cost(&self, entry: &Entry) -> Option<u64> {
        match self {
            Self::Fixed(units) => Some(*units),
            Self::Value(number) => number.0.number(entry),
        }
    }
}

impl FromStr for CostExpression {
    type Err = ExpressionError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        if let Ok(units) = text.parse() {
            return Ok(Self::Fixed(units));
        }
        let value = text.parse::<Value>().ok().filter(Value::is_number);
        value.map(|value| Self::Value(RequestNumber(value))).ok_or_else(|| {
            let allowed = "a whole number, bytes, field:NAME or header:NAME";
            ExpressionError(format!("{text:?} is no cost; allowed is {allowed}"))
        })
    }
}

impl fmt::Display for CostExpression {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Fixed(units) => write!(f, "{units}"),
            Self::Value(number) => write!(f, "{}", number.0),
        }
    }
}
