//! The parser of addresses in forwarding headers.

use std::{net::IpAddr, str};

use crate::error::Error;

/// Parses the address of a node: `192.0.2.1`, `192.0.2.1:8080`, `2001:db8::1`, `[2001:db8::1]` or
/// `[2001:db8::1]:8080`. The port may be obfuscated (`:_a`). The address is returned in canonical
/// form.
///
/// Returns `None` for any other text, such as `unknown` or an obfuscated name.
pub(super) fn parse(node: &[u8]) -> Option<IpAddr> {
    let node = str::from_utf8(node).ok()?;
    // Most nodes are an address alone.
    let address = node.parse().ok().or_else(|| parse_with_port(node))?;
    Some(address.to_canonical())
}

fn parse_with_port(node: &str) -> Option<IpAddr> {
    let (address, port) = match node.strip_prefix('[') {
        Some(rest) => {
            let (address, port) = rest.split_once(']')?;
            (IpAddr::V6(address.parse().ok()?), port)
        }
        None => {
            let (address, port) = node.split_at(node.find(':')?);
            (IpAddr::V4(address.parse().ok()?), port)
        }
    };
    (port.is_empty() || is_port(port.strip_prefix(':')?)).then_some(address)
}

/// Returns whether the text is a `node-port` (RFC 7239, section 6).
fn is_port(port: &str) -> bool {
    match port.strip_prefix('_') {
        Some(name) => {
            let mut bytes = name.bytes();
            !name.is_empty()
                && bytes.all(|byte| byte.is_ascii_alphanumeric() || b"._-".contains(&byte))
        }
        None => (1..=5).contains(&port.len()) && port.bytes().all(|byte| byte.is_ascii_digit()),
    }
}

/// A list of address ranges, as pairs of network and mask. An IPv4 range is the range of the IPv4-mapped addresses.
#[derive(Debug, Clone, Default)]
pub(super) struct Cidrs(Vec<(u128, u128)>);

/// The number of bits in front of an IPv4 address in its IPv4-mapped address.
const MAPPED_PREFIX: u32 = 96;

impl Cidrs {
    /// Parses a list of ranges.
    ///
    /// # Errors
    ///
    /// Returns an error if an item is neither an address nor the first address of a range.
    pub(super) fn parse(ranges: impl IntoIterator<Item = impl AsRef<str>>) -> Result<Self, Error> {
        let mut cidrs = Vec::new();
        for range in ranges {
            let range = range.as_ref();
            cidrs.push(parse_range(range).ok_or_else(|| {
                let allowed = "an address, or the first address of a range and a prefix length: \
                               10.0.0.0/8, fd00::/8";
                Error::invalid("trusted proxy", range, allowed)
            })?);
        }
        Ok(Self(cidrs))
    }

    /// Returns whether an address in canonical form is in one of the ranges. A short IPv6 range, such as `::/0`,
    /// contains no IPv4 address.
    pub(super) fn contain(&self, address: IpAddr) -> bool {
        let bits = bits(address);
        let min_prefix = if address.is_ipv4() { MAPPED_PREFIX } else { 0 };
        self.0
            .iter()
            .any(|(network, mask)| bits & mask == *network && mask.leading_ones() >= min_prefix)
    }
}

/// Parses a range into its network and mask. Returns `None` if the address has bits after the prefix, because then the
/// address or the prefix is a mistake.
fn parse_range(range: &str) -> Option<(u128, u128)> {
    let (address, prefix) = match range.split_once('/') {
        Some((address, prefix)) => (address, Some(prefix_length(prefix)?)),
        None => (range, None),
    };
    let address: IpAddr = address.parse().ok()?;
    let bits = bits(address);
    let family_prefix = if address.is_ipv4() { MAPPED_PREFIX } else { 0 };
    let length = prefix.map_or(Some(128), |prefix| prefix.checked_add(family_prefix))?;
    let mask = u128::MAX.checked_shl(128_u32.checked_sub(length)?).unwrap_or(0);
    (bits & mask == bits).then_some((bits, mask))
}

fn bits(address: IpAddr) -> u128 {
    match address {
        IpAddr::V4(v4) => v4.to_ipv6_mapped().to_bits(),
        IpAddr::V6(v6) => v6.to_bits(),
    }
}

/// Parses a prefix length of digits only. `parse` alone would accept a plus sign.
fn prefix_length(text: &str) -> Option<u32> {
    text.bytes().all(|byte| byte.is_ascii_digit()).then(|| text.parse().ok())?
}
