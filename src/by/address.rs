//! An address as forwarding headers write it.

use std::{
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
    str,
};

/// The address of a node: `192.0.2.1`, `192.0.2.1:8080`, `2001:db8::1`, `[2001:db8::1]` or
/// `[2001:db8::1]:8080`, in canonical form. `None` for anything else: `unknown`, obfuscated names,
/// garbage.
pub(super) fn parse(node: &[u8]) -> Option<IpAddr> {
    let address = match node {
        [b'[', rest @ ..] => {
            let end = rest.iter().position(|byte| *byte == b']')?;
            let (address, port) = (&rest[..end], &rest[end + 1..]);
            let valid = port.is_empty() || port.split_first().is_some_and(is_port);
            IpAddr::V6(valid.then(|| v6(address))??)
        }
        _ => match node.iter().position(|byte| *byte == b':') {
            None => IpAddr::V4(v4(node)?),
            // More colons than one: an IPv6 address without its brackets.
            Some(colon) if node[colon + 1..].contains(&b':') => IpAddr::V6(v6(node)?),
            Some(colon) => {
                let (address, port) = node.split_at(colon);
                IpAddr::V4(port.split_first().is_some_and(is_port).then(|| v4(address))??)
            }
        },
    };
    Some(address.to_canonical())
}

fn is_port((colon, digits): (&u8, &[u8])) -> bool {
    *colon == b':' && (1..=5).contains(&digits.len()) && digits.iter().all(u8::is_ascii_digit)
}

fn v4(text: &[u8]) -> Option<Ipv4Addr> {
    str::from_utf8(text).ok()?.parse().ok()
}

fn v6(text: &[u8]) -> Option<Ipv6Addr> {
    str::from_utf8(text).ok()?.parse().ok()
}
