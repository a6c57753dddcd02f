//! The parser of addresses in forwarding headers.

use std::{
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
    str,
};

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
