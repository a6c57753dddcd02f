//! The addresses of clients, as logs write them.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Returns the address of a text: with a port, in brackets, with a zone, or the last of a list.
///
/// The last address of a list such as `X-Forwarded-For` was added by the proxy that has written the log. The addresses
/// before it are as the client has sent them.
pub(super) fn parse(text: &str) -> Option<IpAddr> {
    let last = text.rfind(',').map_or(text, |at| &text[at + 1..]);
    let text = last.trim_matches([' ', '"']);
    if let Ok(ip) = text.parse::<Ipv4Addr>() {
        return Some(ip.into());
    }
    let ip = match text.strip_prefix('[') {
        Some(rest) => v6(rest.split_once(']')?.0)?,
        None => v6(text).or_else(|| with_port(text))?,
    };
    Some(ip.to_canonical())
}

/// Returns an IPv6 address, without its zone.
fn v6(text: &str) -> Option<IpAddr> {
    let address = text.split_once('%').map_or(text, |(address, _)| address);
    address.parse::<Ipv6Addr>().ok().map(Into::into)
}

/// Returns the address in front of a port.
fn with_port(text: &str) -> Option<IpAddr> {
    let (address, port) = text.rsplit_once(':')?;
    port.parse::<u16>().ok()?;
    address.parse::<Ipv4Addr>().ok().map(Into::into).or_else(|| v6(address))
}

/// Returns a host without its port.
pub(super) fn without_port(host: &str) -> &str {
    match host.rsplit_once(':') {
        Some((name, port))
            if port.bytes().all(|it| it.is_ascii_digit())
                && (!name.contains(':') || name.ends_with(']')) =>
        {
            name
        }
        _ => host,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_read_as_logs_write_them() {
        for (text, ip) in [
            ("203.0.113.9", "203.0.113.9"),
            ("203.0.113.9:51000", "203.0.113.9"),
            ("2001:db8::1", "2001:db8::1"),
            ("[2001:db8::1]", "2001:db8::1"),
            ("[2001:db8::1]:443", "2001:db8::1"),
            ("fe80::1%eth0", "fe80::1"),
            ("[fe80::1%25eth0]:80", "fe80::1"),
            ("::ffff:203.0.113.9", "203.0.113.9"),
            ("2001:db8:0:0:0:0:0:1:51000", "2001:db8::1"),
            ("198.51.100.7, 203.0.113.9", "203.0.113.9"),
            ("198.51.100.7,\"[2001:db8::1]:80\"", "2001:db8::1"),
        ] {
            assert_eq!(parse(text), Some(ip.parse().unwrap()), "{text}");
        }
        for text in
            ["", "-", "unix:", "client.example", "203.0.113", "203.0.113.9:x", "[2001:db8::1"]
        {
            assert_eq!(parse(text), None, "{text}");
        }
    }

    #[test]
    fn a_host_loses_its_port() {
        for (host, name) in [
            ("api.example:443", "api.example"),
            ("api.example", "api.example"),
            ("[2001:db8::1]:443", "[2001:db8::1]"),
            ("2001:db8::1", "2001:db8::1"),
        ] {
            assert_eq!(without_port(host), name);
        }
    }
}
