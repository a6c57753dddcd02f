//! `ClientIp` reads header lines of arbitrary bytes from a trusted proxy.
//!
//! It must not panic, and elements to the left of an untrusted address must not change the result.
#![no_main]

use std::net::{IpAddr, Ipv6Addr, SocketAddr};

use http::{HeaderValue, Request, request::Parts};
use libfuzzer_sys::fuzz_target;
use plimsoll::by::ClientIp;

const PEER: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(10, 0, 0, 1));

fn request(name: &'static str, lines: &[&[u8]]) -> Parts {
    let (mut parts, ()) = Request::new(()).into_parts();
    parts.extensions.insert(SocketAddr::new(PEER, 1));
    for line in lines {
        if let Ok(value) = HeaderValue::from_bytes(line) {
            parts.headers.append(name, value);
        }
    }
    parts
}

fuzz_target!(|bytes: &[u8]| {
    let proxies = ["10.0.0.0/8", "fd00::/8"];
    let lines: Vec<&[u8]> = bytes.split(|byte| *byte == b'\n').collect();
    for (name, client_ip, appended) in [
        ("x-forwarded-for", ClientIp::x_forwarded_for(proxies), &b"203.0.113.9, 10.0.0.2"[..]),
        ("forwarded", ClientIp::forwarded(proxies), b"for=203.0.113.9;proto=http, for=10.0.0.2"),
    ] {
        let client_ip = client_ip.unwrap();
        let found = client_ip.find(&request(name, &lines)).unwrap();
        assert_eq!(found, found.to_canonical());

        // Forged elements before those that proxies append change nothing.
        let mut honest = lines.clone();
        honest.push(appended);
        let expected: IpAddr = "203.0.113.9".parse().unwrap();
        assert_eq!(client_ip.find(&request(name, &honest)), Some(expected));
        // Empty elements change nothing.
        let padded: Vec<_> =
            [&b""[..], b" ,"].into_iter().chain(lines.clone()).chain([&b",\t, "[..]]).collect();
        assert_eq!(client_ip.find(&request(name, &padded)), Some(found));
        let mut joined = lines.last().copied().unwrap_or_default().to_vec();
        joined.extend_from_slice(b", ");
        joined.extend_from_slice(appended);
        if HeaderValue::from_bytes(&joined).is_ok() {
            assert_eq!(client_ip.find(&request(name, &[&joined])), Some(expected));
        }
    }
    // A header of one address is that address, or the peer.
    let single = ClientIp::header("x-real-ip", proxies).unwrap();
    let found = single.find(&request("x-real-ip", &lines)).unwrap();
    assert_eq!(found, found.to_canonical());
    assert!(lines.len() == 1 || found == PEER || request("x-real-ip", &lines).headers.len() == 1);
    // An address is charged by its first 64 bits, or as the IPv4 address that it contains.
    if let Some(octets) = bytes.first_chunk::<16>() {
        let address = Ipv6Addr::from(*octets);
        let text = address.to_string();
        let found = single.find(&request("x-real-ip", &[text.as_bytes()])).unwrap();
        match found {
            IpAddr::V6(found) => assert_eq!(found.to_bits(), address.to_bits() >> 64 << 64),
            IpAddr::V4(found) => {
                let (inside, bits) = (u128::from(found.to_bits()), address.to_bits());
                let contains = (0..=96).any(|shift| bits >> shift & 0xffff_ffff == inside);
                assert!(contains || !bits & 0xffff_ffff == inside, "{address} as {found}");
            }
        }
    }
    // The parser of IPv4 addresses agrees with the standard library.
    if let Ok(text) = std::str::from_utf8(bytes)
        && let Ok(address) = text.parse::<std::net::Ipv4Addr>()
    {
        let client_ip = ClientIp::x_forwarded_for(["0.0.0.0/0"]).unwrap();
        assert_eq!(
            client_ip.find(&request("x-forwarded-for", &[bytes])),
            Some(IpAddr::V4(address))
        );
    }
});
