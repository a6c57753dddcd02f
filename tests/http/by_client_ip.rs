//! The address of the client: behind proxies, and with forged headers.

use std::net::{IpAddr, SocketAddr};

use http::{HeaderValue, Request, request::Parts};
#[cfg(all(unix, feature = "axum"))]
use plimsoll::{Limiter, Policy, Quota, RateLimitLayer, Rule, by};
use plimsoll::{by::ClientIp, error::ErrorKind};
#[cfg(all(unix, feature = "axum"))]
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{UnixListener, UnixStream},
};

fn request(peer: &str, lines: &[(&'static str, &[u8])]) -> Parts {
    let (mut parts, ()) = Request::new(()).into_parts();
    if !peer.is_empty() {
        parts.extensions.insert(SocketAddr::new(peer.parse().unwrap(), 4711));
    }
    for (name, value) in lines {
        parts.headers.append(*name, HeaderValue::from_bytes(value).unwrap());
    }
    parts
}

fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

/// The guide's page on proxies, over a real socket: clients behind a proxy are charged apart from each other.
#[cfg(all(unix, feature = "axum"))]
#[tokio::test]
async fn unix_socket() {
    let name = format!("plimsoll-{}-{}.sock", std::process::id(), line!());
    let path = std::env::temp_dir().join(name);
    let proxy = IpAddr::from([127, 0, 0, 1]);
    let source = ClientIp::x_forwarded_for(["127.0.0.1"]).unwrap().peer_from(move |_| Some(proxy));
    let policy = Policy::new("p", Quota::per_day(2)).unwrap();
    let layer = RateLimitLayer::new(Limiter::in_memory(), Rule::new(policy, by::client_ip(source)));
    let app = axum::Router::new().route("/", axum::routing::get(|| async {})).layer(layer);
    let listener = UnixListener::bind(&path).unwrap();
    let server = tokio::spawn(async { axum::serve(listener, app).await });
    let mut statuses = Vec::new();
    for client in ["1.1.1.1, 203.0.113.9", "2.2.2.2, 203.0.113.9", "203.0.113.9", "203.0.113.10"] {
        let mut stream = UnixStream::connect(&path).await.unwrap();
        let request = format!(
            "GET / HTTP/1.1\r\nhost: a\r\nconnection: close\r\nx-forwarded-for: {client}\r\n\r\n"
        );
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut response = String::new();
        stream.read_to_string(&mut response).await.unwrap();
        statuses.push(response["HTTP/1.1 ".len()..][..3].to_owned());
    }
    server.abort();
    std::fs::remove_file(path).unwrap();
    assert_eq!(statuses, ["200", "200", "429", "200"]);
}

const PROXIES: [&str; 3] = ["10.0.0.0/8", "192.168.7.1", "fd00::/8"];

#[test]
fn x_forwarded_for() {
    let xff = ClientIp::x_forwarded_for(PROXIES).unwrap().ipv6_prefix(128).unwrap();
    // The case, the peer, the lines of the header, and the client.
    let table: &[(&str, &str, &[&str], &str)] = &[
        ("no header", "10.0.0.1", &[], "10.0.0.1"),
        ("one hop", "10.0.0.1", &["203.0.113.9"], "203.0.113.9"),
        ("untrusted peer lies", "198.51.100.1", &["203.0.113.9"], "198.51.100.1"),
        ("spoofed left part", "10.0.0.1", &["1.1.1.1, 8.8.8.8, 203.0.113.9"], "203.0.113.9"),
        ("spoofed trusted left", "10.0.0.1", &["10.9.9.9, 203.0.113.9"], "203.0.113.9"),
        ("two proxies", "10.0.0.1", &["203.0.113.9, 10.0.0.2"], "203.0.113.9"),
        ("several lines", "10.0.0.1", &["1.1.1.1", "203.0.113.9", "10.0.0.2"], "203.0.113.9"),
        (
            "lines and lists",
            "10.0.0.1",
            &["1.1.1.1, 203.0.113.9", "10.0.0.3,10.0.0.2"],
            "203.0.113.9",
        ),
        ("single address trusted", "192.168.7.1", &["203.0.113.9"], "203.0.113.9"),
        ("its neighbour is not", "192.168.7.2", &["203.0.113.9"], "192.168.7.2"),
        ("port", "10.0.0.1", &["203.0.113.9:1234"], "203.0.113.9"),
        ("bad port", "10.0.0.1", &["203.0.113.9:x"], "10.0.0.1"),
        ("obfuscated port", "10.0.0.1", &["203.0.113.9:_x"], "203.0.113.9"),
        ("empty port", "10.0.0.1", &["203.0.113.9:"], "10.0.0.1"),
        ("port of six digits", "10.0.0.1", &["203.0.113.9:123456"], "10.0.0.1"),
        ("three octets", "10.0.0.1", &["203.0.113"], "10.0.0.1"),
        ("five octets", "10.0.0.1", &["203.0.113.9.1"], "10.0.0.1"),
        ("octet of 256", "10.0.0.1", &["203.0.113.256"], "10.0.0.1"),
        ("octet of 300", "10.0.0.1", &["300.0.113.9"], "10.0.0.1"),
        ("octet of 255", "10.0.0.1", &["255.0.113.249"], "255.0.113.249"),
        ("octet of four digits", "10.0.0.1", &["203.0.113.1000"], "10.0.0.1"),
        ("empty octet", "10.0.0.1", &["203..113.9"], "10.0.0.1"),
        ("dot at the end", "10.0.0.1", &["203.0.113.9."], "10.0.0.1"),
        ("plus", "10.0.0.1", &["+203.0.113.9"], "10.0.0.1"),
        ("zeros", "10.0.0.1", &["0.0.0.0"], "0.0.0.0"),
        ("leading zero", "10.0.0.1", &["203.0.113.09"], "10.0.0.1"),
        ("leading zeros", "10.0.0.1", &["203.00.113.9"], "10.0.0.1"),
        ("IPv6", "10.0.0.1", &["2001:db8::1"], "2001:db8::1"),
        ("IPv6 in brackets", "10.0.0.1", &["[2001:db8::1]"], "2001:db8::1"),
        ("IPv6 and port", "10.0.0.1", &["[2001:db8::1]:443"], "2001:db8::1"),
        ("unclosed bracket", "10.0.0.1", &["[2001:db8::1"], "10.0.0.1"),
        ("zone", "10.0.0.1", &["fe80::1%eth0"], "10.0.0.1"),
        ("IPv6 proxy", "fd00::5", &["203.0.113.9"], "203.0.113.9"),
        ("all hops trusted", "10.0.0.1", &["10.0.0.4, 10.0.0.3, 10.0.0.2"], "10.0.0.4"),
        ("unknown", "10.0.0.1", &["203.0.113.9, unknown"], "10.0.0.1"),
        ("unknown after a good hop", "10.0.0.1", &["203.0.113.9, unknown, 10.0.0.2"], "10.0.0.2"),
        ("obfuscated", "10.0.0.1", &["203.0.113.9, _hidden, 10.0.0.2"], "10.0.0.2"),
        ("garbage", "10.0.0.1", &["203.0.113.9, %%%"], "10.0.0.1"),
        ("empty", "10.0.0.1", &[""], "10.0.0.1"),
        ("empty element", "10.0.0.1", &["203.0.113.9, ,10.0.0.2"], "203.0.113.9"),
        ("octal", "10.0.0.1", &["010.1.1.1"], "10.0.0.1"),
        ("mapped, dotted", "10.0.0.1", &["::ffff:203.0.113.9"], "203.0.113.9"),
        ("mapped, hexadecimal", "10.0.0.1", &["::ffff:cb00:7109"], "203.0.113.9"),
        ("mapped hop is trusted", "10.0.0.1", &["203.0.113.9, ::ffff:10.0.0.2"], "203.0.113.9"),
        ("mapped peer is trusted", "::ffff:10.0.0.1", &["203.0.113.9"], "203.0.113.9"),
        ("mapped peer, hexadecimal", "::ffff:a00:1", &["203.0.113.9"], "203.0.113.9"),
        ("mapped untrusted peer", "::ffff:198.51.100.1", &["203.0.113.9"], "198.51.100.1"),
        ("white space", "10.0.0.1", &["  203.0.113.9\t,  10.0.0.2 "], "203.0.113.9"),
    ];
    for (what, peer, lines, expected) in table {
        let lines: Vec<_> = lines.iter().map(|line| ("x-forwarded-for", line.as_bytes())).collect();
        assert_eq!(xff.find(&request(peer, &lines)), Some(ip(expected)), "{what}");
    }
    let latin = request("10.0.0.1", &[("x-forwarded-for", b"203.0.113.9, \xff\xfe")]);
    assert_eq!(xff.find(&latin), Some(ip("10.0.0.1")), "not UTF-8");
    let long = "1".repeat(64 << 10);
    let long = request("10.0.0.1", &[("x-forwarded-for", long.as_bytes())]);
    assert_eq!(xff.find(&long), Some(ip("10.0.0.1")), "64 KiB");
}

#[test]
fn forwarded() {
    let forwarded = ClientIp::forwarded(PROXIES).unwrap().ipv6_prefix(128).unwrap();
    let table: &[(&str, &[&str], &str)] = &[
        ("plain", &["for=203.0.113.9"], "203.0.113.9"),
        ("case and order", &["proto=https;FOR=203.0.113.9; by=10.0.0.1"], "203.0.113.9"),
        ("quoted with port", &["for=\"203.0.113.9:47\""], "203.0.113.9"),
        ("quoted IPv6", &["for=\"[2001:db8::1]\""], "2001:db8::1"),
        ("quoted IPv6 and port", &["for=\"[2001:db8::1]:4711\";proto=http"], "2001:db8::1"),
        ("chain", &["for=1.1.1.1, for=203.0.113.9", "for=10.0.0.2"], "203.0.113.9"),
        ("unknown", &["for=203.0.113.9, for=unknown"], "10.0.0.1"),
        ("leading zero", &["for=203.0.113.09"], "10.0.0.1"),
        ("more after the address", &["for=203.0.113.9x"], "10.0.0.1"),
        ("another parameter", &["fox=203.0.113.9"], "10.0.0.1"),
        ("semicolon at the end", &["for=203.0.113.9;"], "203.0.113.9"),
        ("empty pairs", &[";for=203.0.113.9; ;;proto=http"], "203.0.113.9"),
        ("empty pairs alone", &["for=203.0.113.9, ;, for=10.0.0.2"], "10.0.0.2"),
        ("obfuscated port", &["for=\"203.0.113.9:_a.B-9_\""], "203.0.113.9"),
        ("IPv6 and obfuscated port", &["for=\"[2001:db8::1]:_a\""], "2001:db8::1"),
        ("obfuscated port without a name", &["for=\"[2001:db8::1]:_\""], "10.0.0.1"),
        ("obfuscated port with a plus", &["for=\"203.0.113.9:_a+b\""], "10.0.0.1"),
        ("neither a port nor obfuscated", &["for=\"203.0.113.9:a\""], "10.0.0.1"),
        ("a quote in a quoted value", &["for=203.0.113.9;host=\"a\"b\""], "10.0.0.1"),
        ("a quote that is not closed", &["for=203.0.113.9;host=\"a"], "10.0.0.1"),
        ("not a token", &["for=203.0.113.9;host=a/b"], "10.0.0.1"),
        ("a name with a space", &["for=203.0.113.9;a b=c"], "10.0.0.1"),
        ("obfuscated", &["for=203.0.113.9, for=_gazonk"], "10.0.0.1"),
        ("no for", &["for=203.0.113.9, proto=http"], "10.0.0.1"),
        ("two fors", &["for=203.0.113.9;for=1.1.1.1"], "10.0.0.1"),
        ("garbage before is ignored", &["for=\", for=203.0.113.9"], "203.0.113.9"),
        ("garbage at the end stops", &["for=203.0.113.9, ;;"], "10.0.0.1"),
        ("a comma in quotes", &["for=1.1.1.1;host=\"x, for=2.2.2.2\""], "10.0.0.1"),
        ("an escaped quote", &["for=1.1.1.1;host=\"x, for=2.2.2.2;a=\\\"b\""], "10.0.0.1"),
        ("x-forwarded-for is another header", &[], "10.0.0.1"),
    ];
    for (what, lines, expected) in table {
        let mut lines: Vec<_> = lines.iter().map(|line| ("forwarded", line.as_bytes())).collect();
        lines.push(("x-forwarded-for", b"9.9.9.9"));
        assert_eq!(forwarded.find(&request("10.0.0.1", &lines)), Some(ip(expected)), "{what}");
    }
}

#[test]
fn a_header_of_one_value() {
    let single = ClientIp::header("CF-Connecting-IP", PROXIES).unwrap();
    let name = "cf-connecting-ip";
    let find = |peer: &str, lines: &[&[u8]]| {
        let lines: Vec<_> = lines.iter().map(|line| (name, *line)).collect();
        single.find(&request(peer, &lines)).unwrap()
    };
    assert_eq!(find("10.0.0.1", &[b"203.0.113.9"]), ip("203.0.113.9"));
    assert_eq!(find("198.51.100.1", &[b"203.0.113.9"]), ip("198.51.100.1"), "not from there");
    assert_eq!(find("10.0.0.1", &[]), ip("10.0.0.1"));
    assert_eq!(find("10.0.0.1", &[b"203.0.113.9", b"1.1.1.1"]), ip("10.0.0.1"), "two lines");
    assert_eq!(find("10.0.0.1", &[b"203.0.113.9, 1.1.1.1"]), ip("10.0.0.1"), "a list");
    assert_eq!(find("10.0.0.1", &[b"nonsense"]), ip("10.0.0.1"));
}

#[test]
fn no_proxies_no_trust() {
    let lines: &[(&str, &[u8])] =
        &[("x-forwarded-for", b"203.0.113.9"), ("forwarded", b"for=203.0.113.9")];
    for how in [
        ClientIp::peer(),
        ClientIp::x_forwarded_for([""; 0]).unwrap(),
        ClientIp::forwarded([""; 0]).unwrap(),
    ] {
        assert_eq!(how.find(&request("10.0.0.1", lines)), Some(ip("10.0.0.1")), "{how:?}");
        assert_eq!(how.find(&request("", lines)), None, "no peer, no client");
    }
}

#[test]
fn subscribers_of_ipv6() {
    let find = |how: &ClientIp, peer: &str| how.find(&request(peer, &[])).unwrap();
    let peer = ClientIp::peer();
    assert_eq!(find(&peer, "2001:db8:1:2:ffff:4:5:6"), ip("2001:db8:1:2::"));
    assert_eq!(
        find(&peer.clone().ipv6_prefix(56).unwrap(), "2001:db8:1:2ff::6"),
        ip("2001:db8:1:200::")
    );
    assert_eq!(find(&peer.clone().ipv6_prefix(48).unwrap(), "2001:db8:1:2::6"), ip("2001:db8:1::"));
    assert_ne!(find(&peer, "::ffff:1.2.3.4"), find(&peer, "::ffff:1.2.3.5"), "IPv4 is not masked");
    assert!(peer.clone().ipv6_prefix(0).is_err());
    assert!(peer.ipv6_prefix(129).is_err());
}

/// An address that contains an IPv4 address is charged as that one, whatever the prefix.
#[test]
fn ipv4_inside_of_ipv6() {
    for (address, charged) in [
        ("::ffff:203.0.113.9", "203.0.113.9"),
        ("::203.0.113.9", "203.0.113.9"),
        ("::2", "0.0.0.2"),
        ("64:ff9b::203.0.113.9", "203.0.113.9"),
        ("64:ff9b::cb00:7109", "203.0.113.9"),
        ("2002:cb00:7109::1", "203.0.113.9"),
        ("2002:cb00:7109:ffff:1:2:3:4", "203.0.113.9"),
        // Its server is 192.0.2.45, its port 40000 (RFC 4380, section 4).
        ("2001:0:c000:22d:8000:63bf:34ff:8ef6", "203.0.113.9"),
        // These are not.
        ("::", "::"),
        ("::1", "::"),
        ("::1:0:0", "::"),
        ("64:ff9b:1::203.0.113.9", "64:ff9b:1::"),
        ("64:ff9b::1:203.0.113.9", "64:ff9b::"),
        ("64:ff9a::203.0.113.9", "64:ff9a::"),
        ("2001:1::cb00:7109", "2001:1::"),
        ("2003:cb00:7109::1", "2003:cb00:7109::"),
        ("fe80::203.0.113.9", "fe80::"),
    ] {
        let peer = ClientIp::peer();
        assert_eq!(peer.find(&request(address, &[])), Some(ip(charged)), "{address}");
        if ip(charged).is_ipv4() {
            for bits in [1, 64, 128] {
                let how = peer.clone().ipv6_prefix(bits).unwrap();
                assert_eq!(how.find(&request(address, &[])), Some(ip(charged)), "{address}/{bits}");
            }
        }
        let xff = ClientIp::x_forwarded_for(PROXIES).unwrap();
        let lines: &[(&str, &[u8])] = &[("x-forwarded-for", address.as_bytes())];
        assert_eq!(xff.find(&request("10.0.0.1", lines)), Some(ip(charged)), "{address}");
    }
    // Trust is by the address as it is: other forms of a proxy's address are not the proxy.
    let xff = ClientIp::x_forwarded_for(PROXIES).unwrap();
    for other in ["64:ff9b::10.0.0.1", "::10.0.0.1", "2002:a00:1::1"] {
        let lines: &[(&str, &[u8])] = &[("x-forwarded-for", b"203.0.113.9")];
        assert_eq!(xff.find(&request(other, lines)), Some(ip("10.0.0.1")), "{other}");
        let line = format!("203.0.113.9, {other}");
        let lines: &[(&str, &[u8])] = &[("x-forwarded-for", line.as_bytes())];
        assert_eq!(xff.find(&request("10.0.0.1", lines)), Some(ip("10.0.0.1")), "{other}");
    }
}

#[test]
fn ranges() {
    for good in ["0.0.0.0/0", "::/0", "10.1.2.3", "10.1.2.3/32", "::1/128", "::ffff:10.0.0.0/104"] {
        assert!(ClientIp::x_forwarded_for([good]).is_ok(), "{good}");
    }
    for bad in [
        "",
        "10.0.0.1/8",
        "10.0.0.0/33",
        "10.0.0.0/-1",
        "10.0.0.0/+8",
        "10.0.0.0/",
        "::/129",
        "10.0.0/8",
        "proxy.example",
        "10.0.0.0/8 ",
    ] {
        let error = ClientIp::x_forwarded_for([bad]).unwrap_err();
        assert!(
            error.kind() == ErrorKind::Invalid && error.to_string().contains("trusted proxy"),
            "{bad}"
        );
    }
    for bad in ["fd00::1/8", "::ffff:10.0.0.1/104", "::ffff:0:0/95"] {
        assert!(ClientIp::x_forwarded_for([bad]).is_err(), "{bad}");
    }
    let mapped = ClientIp::x_forwarded_for(["::ffff:10.0.0.0/104"]).unwrap();
    let forwarded: &[(&str, &[u8])] = &[("x-forwarded-for", b"203.0.113.9")];
    assert_eq!(mapped.find(&request("10.200.0.1", forwarded)), Some(ip("203.0.113.9")));
    let any = ClientIp::x_forwarded_for(["0.0.0.0/0"]).unwrap();
    assert_eq!(any.find(&request("1.2.3.4", forwarded)), Some(ip("203.0.113.9")));
    assert_eq!(any.find(&request("2001:db8::1", forwarded)), Some(ip("2001:db8::")));
}

/// The first and the last address of a range are in it, their neighbours are not.
#[test]
fn bounds_of_ranges() {
    for (range, outside, first, last, beyond) in [
        ("10.0.0.0/8", "9.255.255.255", "10.0.0.0", "10.255.255.255", "11.0.0.0"),
        ("172.16.0.0/12", "172.15.255.255", "172.16.0.0", "172.31.255.255", "172.32.0.0"),
        ("192.168.7.128/25", "192.168.7.127", "192.168.7.128", "192.168.7.255", "192.168.8.0"),
        ("192.168.7.2/31", "192.168.7.1", "192.168.7.2", "192.168.7.3", "192.168.7.4"),
        ("192.168.7.2", "192.168.7.1", "192.168.7.2", "192.168.7.2", "192.168.7.3"),
        ("128.0.0.0/1", "127.255.255.255", "128.0.0.0", "255.255.255.255", "127.0.0.0"),
        ("::ffff:0:0/96", "::fffe:ffff:ffff", "0.0.0.0", "255.255.255.255", "::1:0:0:0"),
        (
            "fd00::/8",
            "fcff:ffff:ffff:ffff:ffff:ffff:ffff:ffff",
            "fd00::",
            "fdff:ffff:ffff:ffff:ffff:ffff:ffff:ffff",
            "fe00::",
        ),
        ("2001:db8::/33", "2001:db7::", "2001:db8::", "2001:db8:7fff::", "2001:db8:8000::"),
        ("2001:db8::4/127", "2001:db8::3", "2001:db8::4", "2001:db8::5", "2001:db8::6"),
        ("2001:db8::4", "2001:db8::3", "2001:db8::4", "2001:db8::4", "2001:db8::5"),
    ] {
        let how = ClientIp::x_forwarded_for([range]).unwrap().ipv6_prefix(128).unwrap();
        let trusted = |peer: &str| {
            let found = how.find(&request(peer, &[("x-forwarded-for", b"203.0.113.9")])).unwrap();
            found == ip("203.0.113.9")
        };
        for (peer, expected) in [(outside, false), (first, true), (last, true), (beyond, false)] {
            assert_eq!(trusted(peer), expected, "{peer} in {range}");
        }
    }
}

/// The key that an operator makes of an address is the key that the rule charges.
#[test]
fn an_address_makes_the_same_key_everywhere() {
    use plimsoll::{Key, by, key::Identity};

    let addresses = [
        "203.0.113.9",
        "::ffff:203.0.113.9",
        "2001:db8:1:2:3:4:5:6",
        "2001:db8:1:2::",
        "2002:cb00:7109::1",
        "64:ff9b::cb00:7109",
        "2001::1",
        "::1",
    ];
    for address in addresses {
        let parts = request(address, &[]);
        assert_eq!(by::peer_ip()(&parts), Identity::Known(Key::from(ip(address))), "{address}");
        assert_eq!(ClientIp::peer().key(ip(address)), Key::from(ip(address)), "{address}");
        let mut charged = Vec::new();
        for bits in [1, 48, 56, 64, 65, 128] {
            let clients = ClientIp::peer().ipv6_prefix(bits).unwrap();
            let key = clients.key(ip(address));
            assert_eq!(by::client_ip(clients)(&parts), Identity::Known(key), "{address}/{bits}");
            charged.push(key);
        }
        let is_wide = ["2001:db8:1:2:3:4:5:6", "::1"].contains(&address);
        assert_eq!(charged[3] != charged[5], is_wide, "{address} has bits after the prefix");
    }
}
