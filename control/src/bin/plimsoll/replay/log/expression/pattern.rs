//! The patterns of filters.

use std::net::IpAddr;

use super::key::network;

/// A text in which `*` stands for any characters.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Glob(String);

/// A network of addresses, or one address.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Network {
    first: IpAddr,
    bits: u32,
}

impl Glob {
    pub(super) fn new(pattern: &str) -> Self {
        Self(pattern.to_owned())
    }

    /// Returns whether the whole text has this form.
    pub(super) fn matches(&self, text: &str) -> bool {
        let Some((begin, rest)) = self.0.split_once('*') else { return self.0 == text };
        let Some(mut text) = text.strip_prefix(begin) else { return false };
        let (middle, end) = rest.rsplit_once('*').unwrap_or(("", rest));
        // The first place of each part leaves most of the text to the parts behind it.
        for part in middle.split('*') {
            let Some(at) = text.find(part) else { return false };
            text = &text[at + part.len()..];
        }
        text.ends_with(end)
    }
}

impl Network {
    /// Reads `203.0.113.0/24` or `203.0.113.9`.
    pub(super) fn parse(text: &str) -> Option<Self> {
        let (address, bits) = match text.split_once('/') {
            Some((address, bits)) => (address, Some(bits.parse::<u32>().ok()?)),
            None => (text, None),
        };
        let ip = address.parse::<IpAddr>().ok()?.to_canonical();
        let most = if ip.is_ipv4() { 32 } else { 128 };
        let bits = bits.unwrap_or(most);
        (bits <= most).then(|| Self { first: network(ip, bits, bits), bits })
    }

    pub(super) fn contains(&self, ip: IpAddr) -> bool {
        ip.is_ipv4() == self.first.is_ipv4() && network(ip, self.bits, self.bits) == self.first
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_star_stands_for_any_characters() {
        for (pattern, text) in [
            ("/api/*", "/api/"),
            ("/api/*", "/api/a/b"),
            ("*", ""),
            ("*.png", "/a.png"),
            ("/*/users/*", "/v1/users/7"),
            ("a*b*c", "aXbXbc"),
            ("a**c", "ac"),
            ("abc", "abc"),
        ] {
            assert!(Glob::new(pattern).matches(text), "{pattern} {text}");
        }
        for (pattern, text) in [
            ("/api/*", "/api"),
            ("a*a", "a"),
            ("abc", "abcd"),
            ("*.png", "/a.pngx"),
            ("a*b*c", "abX"),
            ("a*bb*b", "abb"),
        ] {
            assert!(!Glob::new(pattern).matches(text), "{pattern} {text}");
        }
    }

    #[test]
    fn a_network_contains_its_addresses() {
        let contains = |network: &str, ip: &str| {
            Network::parse(network).unwrap().contains(ip.parse().unwrap())
        };
        assert!(contains("203.0.113.7/24", "203.0.113.255"));
        assert!(!contains("203.0.113.0/24", "203.0.114.0"));
        assert!(contains("0.0.0.0/0", "198.51.100.1"));
        assert!(!contains("0.0.0.0/0", "2001:db8::1"));
        assert!(contains("2001:db8::/32", "2001:db8:ffff::1"));
        assert!(contains("203.0.113.9", "203.0.113.9"));
        for text in ["", "203.0.113.0/33", "203.0.113/24", "x/8", "::/129", "203.0.113.0/"] {
            assert_eq!(Network::parse(text), None, "{text}");
        }
    }
}
