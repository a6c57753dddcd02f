//! The address that stands for a client, and its key.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use super::{encoding::Kind, key::Key};

/// The mask of the first 64 bits of an IPv6 address, which is the usual prefix of one subscriber.
pub(crate) const SUBSCRIBER_MASK: u128 = !0 << 64;

/// Returns the address that stands for a client, in canonical form. The IPv4 address stands for an IPv6
/// address that contains it. The bits of another IPv6 address outside of the mask are 0.
pub(crate) fn charged_address(client: IpAddr, ipv6_mask: u128) -> IpAddr {
    match client {
        IpAddr::V6(v6) => embedded_v4(v6)
            .map_or_else(|| IpAddr::V6(Ipv6Addr::from_bits(v6.to_bits() & ipv6_mask)), IpAddr::V4),
        v4 => v4,
    }
}

/// Returns the key of an address that stands for a client. It differs from the key of any text.
pub(crate) fn charged_key(address: IpAddr) -> Key {
    let mut text = *b"\0a________________";
    let octets = &mut text[2..];
    match address {
        IpAddr::V4(v4) => {
            octets[..4].copy_from_slice(&v4.octets());
            Key::of(Kind::Plain, &text[..6])
        }
        IpAddr::V6(v6) => {
            octets.copy_from_slice(&v6.octets());
            Key::of(Kind::Plain, &text)
        }
    }
}

impl From<IpAddr> for Key {
    /// Creates the key that [`by::peer_ip`](crate::by::peer_ip) charges for a client with this address:
    /// the key of the first 64 bits of an IPv6 address, or of the
    /// [IPv4 address inside](crate::by::ClientIp#ipv6-addresses-that-contain-an-ipv4-address). It
    /// differs from the key of any text. For another prefix, use
    /// [`ClientIp::key`](crate::by::ClientIp::key).
    ///
    /// ```
    /// use std::net::IpAddr;
    /// use plimsoll::Key;
    ///
    /// let [one, other]: [IpAddr; 2] = ["2001:db8::1".parse()?, "2001:db8::2:3".parse()?];
    /// assert_eq!(Key::from(one), Key::from(other));
    /// # Ok::<(), std::net::AddrParseError>(())
    /// ```
    fn from(address: IpAddr) -> Self {
        charged_key(charged_address(address, SUBSCRIBER_MASK))
    }
}

impl From<Ipv4Addr> for Key {
    /// Creates the same key as from the [`IpAddr`].
    fn from(address: Ipv4Addr) -> Self {
        Self::from(IpAddr::V4(address))
    }
}

impl From<Ipv6Addr> for Key {
    /// Creates the same key as from the [`IpAddr`].
    fn from(address: Ipv6Addr) -> Self {
        Self::from(IpAddr::V6(address))
    }
}

/// Returns the IPv4 address of a client whose IPv6 address contains it, or `None` for any other
/// address. The table in the docs of [`ClientIp`](crate::by::ClientIp) has the forms.
///
/// Each form puts the addresses of many clients into one /64, or gives a /48 to one client. So a key
/// of the first 64 bits alone would charge one client for others, or give one client 65,536 keys.
fn embedded_v4(address: Ipv6Addr) -> Option<Ipv4Addr> {
    let bits = address.to_bits();
    let v4_bits = match address.segments() {
        // The unspecified address and the loopback address (RFC 4291, sections 2.5.2 and 2.5.3).
        [0, 0, 0, 0, 0, 0, 0, 0 | 1] => return None,
        // Mapped and compatible addresses (RFC 4291, section 2.5.5).
        [0, 0, 0, 0, 0, 0 | 0xffff, ..] => bits as u32,
        // The prefix of NAT64 (RFC 6052, section 2.1).
        [0x64, 0xff9b, 0, 0, 0, 0, ..] => bits as u32,
        // 6to4 (RFC 3056, section 2).
        [0x2002, ..] => (bits >> 80) as u32,
        // Teredo (RFC 4380, section 4) inverts the bits of the client's address.
        [0x2001, 0, ..] => !(bits as u32),
        _ => return None,
    };
    Some(Ipv4Addr::from_bits(v4_bits))
}
