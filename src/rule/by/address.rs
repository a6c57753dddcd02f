//! The parser of addresses in forwarding headers.

use std::{
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
    str,
};

use crate::error::Error;

/// Parses the address of a node: `192.0.2.1`, `192.0.2.1:8080`, `2001:db8::1`, `[2001:db8::1]` or
/// `[2001:db8::1]:8080`. The port may be obfuscated (`:_a`). The address is returned in canonical
/// form.
///
/// Returns `None` for any other text, such as `unknown` or an obfuscated name.
pub(super) fn parse(node: &[u8]) -> Option<IpAddr> {
    // An IPv4 address without a port is by far the most common form (`cargo bench --bench http`).
    v4(node).map(IpAddr::V4).or_else(|| parse_longer(node))
}

fn parse_longer(node: &[u8]) -> Option<IpAddr> {
    let address = match node {
        [b'[', rest @ ..] => {
            let end = rest.iter().position(|byte| *byte == b']')?;
            let (address, port) = (&rest[..end], &rest[end + 1..]);
            let valid = port.is_empty() || port.split_first().is_some_and(is_port);
            IpAddr::V6(valid.then(|| v6(address))??)
        }
        _ => {
            let colon = node.iter().position(|byte| *byte == b':')?;
            let (address, port) = node.split_at(colon);
            match port[1..].contains(&b':') {
                // A second colon marks an IPv6 address without brackets.
                true => IpAddr::V6(v6(node)?),
                false => IpAddr::V4(port.split_first().is_some_and(is_port).then(|| v4(address))??),
            }
        }
    };
    Some(address.to_canonical())
}

/// Returns whether the text is a colon and a `node-port` (RFC 7239, section 6).
fn is_port((colon, port): (&u8, &[u8])) -> bool {
    let in_name = |byte: &u8| byte.is_ascii_alphanumeric() || b"._-".contains(byte);
    let valid = match port {
        [b'_', name @ ..] => !name.is_empty() && name.iter().all(in_name),
        digits => (1..=5).contains(&digits.len()) && digits.iter().all(u8::is_ascii_digit),
    };
    *colon == b':' && valid
}

/// Parses an IPv4 address with the rules of the standard library, in about a third of its time.
pub(super) fn v4(text: &[u8]) -> Option<Ipv4Addr> {
    let (a, rest) = octet(text)?;
    let (b, rest) = octet(rest.strip_prefix(b".")?)?;
    let (c, rest) = octet(rest.strip_prefix(b".")?)?;
    let (d, rest) = octet(rest.strip_prefix(b".")?)?;
    rest.is_empty().then(|| Ipv4Addr::new(a, b, c, d))
}

/// Parses the octet at the start of `text`, and returns it with the rest of the text. It does not
/// accept a digit after a leading zero, because some programs read such a number as octal.
fn octet(text: &[u8]) -> Option<(u8, &[u8])> {
    let digit =
        |place: usize| text.get(place).map(|byte| byte.wrapping_sub(b'0')).filter(|d| *d < 10);
    let first = digit(0)?;
    let Some(second) = digit(1).filter(|_| first > 0) else { return Some((first, &text[1..])) };
    let tens = first * 10 + second;
    let Some(third) = digit(2) else { return Some((tens, &text[2..])) };
    Some((tens.checked_mul(10)?.checked_add(third)?, &text[3..]))
}

fn v6(text: &[u8]) -> Option<Ipv6Addr> {
    str::from_utf8(text).ok()?.parse().ok()
}

/// A list of address ranges, as pairs of network and mask. IPv4 and IPv6 ranges are separate, so
/// that a lookup compares integers only.
#[derive(Debug, Clone, Default)]
pub(super) struct Cidrs {
    v4: Vec<(u32, u32)>,
    v6: Vec<(u128, u128)>,
}

impl Cidrs {
    /// Parses a list of ranges.
    ///
    /// # Errors
    ///
    /// Returns an error if an item is neither an address nor the first address of a range.
    pub(super) fn parse(ranges: impl IntoIterator<Item = impl AsRef<str>>) -> Result<Self, Error> {
        let mut cidrs = Self::default();
        for range in ranges {
            let range = range.as_ref();
            cidrs.add(range).ok_or_else(|| {
                let allowed = "an address, or the first address of a range and a prefix length: \
                               10.0.0.0/8, fd00::/8";
                Error::invalid("trusted proxy", range, allowed)
            })?;
        }
        Ok(cidrs)
    }

    /// Returns whether an address in canonical form is in one of the ranges.
    pub(super) fn contain(&self, address: IpAddr) -> bool {
        match address {
            IpAddr::V4(v4) => {
                let bits = v4.to_bits();
                // All ranges are compared, because branches cost more than the comparisons they
                // save.
                self.v4
                    .iter()
                    .fold(false, |found, (network, mask)| found | (bits & mask == *network))
            }
            IpAddr::V6(v6) => {
                let bits = v6.to_bits();
                self.v6.iter().any(|(network, mask)| bits & mask == *network)
            }
        }
    }

    fn add(&mut self, range: &str) -> Option<()> {
        let (address, prefix) = match range.split_once('/') {
            Some((address, prefix)) => (address, Some(prefix_length(prefix)?)),
            None => (range, None),
        };
        match address.parse().ok()? {
            IpAddr::V4(v4) => self.add_v4(v4.to_bits(), prefix.unwrap_or(32)),
            // The canonical form of IPv4-mapped addresses is IPv4, so their range is an IPv4 range.
            IpAddr::V6(v6) if v6.to_ipv4_mapped().is_some() && prefix.unwrap_or(128) >= 96 => {
                self.add_v4(v6.to_bits() as u32, prefix.unwrap_or(128) - 96)
            }
            IpAddr::V6(v6) => self.add_v6(v6.to_bits(), prefix.unwrap_or(128)),
        }
    }

    /// Adds a range. Returns `None` if the address has bits after the prefix, because then the
    /// address or the prefix is a mistake.
    fn add_v4(&mut self, network: u32, prefix: u32) -> Option<()> {
        let mask = u32::MAX.checked_shl(32_u32.checked_sub(prefix)?).unwrap_or(0);
        (network & mask == network).then(|| self.v4.push((network, mask)))
    }

    fn add_v6(&mut self, network: u128, prefix: u32) -> Option<()> {
        let mask = u128::MAX.checked_shl(128_u32.checked_sub(prefix)?).unwrap_or(0);
        (network & mask == network).then(|| self.v6.push((network, mask)))
    }
}

/// Parses a prefix length of digits only. `parse` alone would accept a plus sign.
fn prefix_length(text: &str) -> Option<u32> {
    text.bytes().all(|byte| byte.is_ascii_digit()).then(|| text.parse().ok())?
}
