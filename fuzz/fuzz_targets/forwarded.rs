//! Header lines of any bytes, from a trusted proxy: no panic; only an address that the proxy's own
//! last element names, or the proxy's, can come out; what stands left of an untrusted one does not
//! matter.
#![no_main]

use std::net::{IpAddr, SocketAddr};

use http::{HeaderValue, Request, request::Parts};
use libfuzzer_sys::fuzz_target;
use tollgate::by::ClientIp;

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
    for (name, how, appended) in [
        ("x-forwarded-for", ClientIp::x_forwarded_for(proxies), &b"203.0.113.9, 10.0.0.2"[..]),
        ("forwarded", ClientIp::forwarded(proxies), b"for=203.0.113.9;proto=http, for=10.0.0.2"),
    ] {
        let how = how.unwrap();
        let found = how.find(&request(name, &lines)).unwrap();
        assert_eq!(found, found.to_canonical());

        // A client's lies before what proxies append change nothing.
        let mut honest = lines.clone();
        honest.push(appended);
        let expected: IpAddr = "203.0.113.9".parse().unwrap();
        assert_eq!(how.find(&request(name, &honest)), Some(expected));
        let mut joined = lines.last().copied().unwrap_or_default().to_vec();
        joined.extend_from_slice(b", ");
        joined.extend_from_slice(appended);
        if HeaderValue::from_bytes(&joined).is_ok() {
            assert_eq!(how.find(&request(name, &[&joined])), Some(expected));
        }
    }
    // Our own parser of IPv4 says what the standard library says.
    if let Ok(text) = std::str::from_utf8(bytes)
        && let Ok(address) = text.parse::<std::net::Ipv4Addr>()
    {
        let how = ClientIp::x_forwarded_for(["0.0.0.0/0"]).unwrap();
        assert_eq!(how.find(&request("x-forwarded-for", &[bytes])), Some(IpAddr::V4(address)));
    }
});
