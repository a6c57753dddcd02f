//! Keys from values of many types: equal only if the values are, and readable only on purpose.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use bytes::Bytes;
use http::{HeaderValue, Request};
use plimsoll::{Key, by, key::Identity};
use plimsoll_testing::seed;
use proptest::{prelude::*, test_runner::Config};

/// A value that a key is made from. Two keys are equal exactly if their values are.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Value {
    Bytes(Vec<u8>),
    /// The sign and the magnitude of an integer of any type.
    Number(bool, u128),
    Address(IpAddr),
    #[cfg(feature = "uuid")]
    Uuid([u8; 16]),
    Anonymous,
    Tagged(Box<Value>, u8),
    Tuple(Vec<Value>),
}

impl Value {
    fn key(&self) -> Key {
        match self {
            Self::Bytes(bytes) => Key::from(bytes),
            Self::Number(true, magnitude) => Key::from(0_i128.wrapping_sub_unsigned(*magnitude)),
            Self::Number(false, magnitude) => Key::from(*magnitude),
            Self::Address(address) => Key::from(*address),
            #[cfg(feature = "uuid")]
            Self::Uuid(bytes) => Key::from(uuid::Uuid::from_bytes(*bytes)),
            Self::Anonymous => Key::ANONYMOUS,
            Self::Tagged(value, tag) => value.key().tagged([*tag]),
            Self::Tuple(values) => match values.iter().map(Self::key).collect::<Vec<_>>()[..] {
                [a, b] => Key::from((a, b)),
                [a, b, c] => Key::from((a, b, c)),
                [a, b, c, d] => Key::from((a, b, c, d)),
                _ => panic!("a tuple of 2 to 4"),
            },
        }
    }
}

/// Returns an IPv6 address that stands for a client: its last 64 bits are 0, and it contains no IPv4 address.
fn subscriber(mut octets: [u8; 16]) -> Value {
    octets[0] |= 0x40;
    octets[8..].fill(0);
    Value::Address(octets.into())
}

/// Few different values, so that two of them are often equal, or one part of the other.
fn values() -> impl Strategy<Value = Value> {
    let byte = || prop::sample::select(vec![0_u8, 1, 2, b'a', b'm', b'n', b'p', b'u', 0x80, 0xff]);
    let integer =
        prop::sample::select(vec![0, 1, 97, u128::from(u64::MAX), 1 << 64, i128::MAX as u128]);
    let leaf = prop_oneof![
        prop::collection::vec(byte(), 0..24).prop_map(Value::Bytes),
        prop::collection::vec(byte(), 44..50).prop_map(Value::Bytes),
        (any::<bool>(), integer).prop_map(|(negative, n)| Value::Number(negative && n > 0, n)),
        prop::array::uniform4(byte()).prop_map(|octets| Value::Address(octets.into())),
        prop::array::uniform16(byte()).prop_map(subscriber),
        Just(Value::Anonymous),
    ];
    #[cfg(feature = "uuid")]
    let leaf = prop_oneof![leaf, prop::array::uniform16(byte()).prop_map(Value::Uuid)];
    leaf.prop_recursive(3, 16, 4, move |inner| {
        prop_oneof![
            3 => prop::collection::vec(inner.clone(), 2..=4).prop_map(Value::Tuple),
            1 => (inner, 0..3_u8).prop_map(|(value, tag)| match value {
                // A second tag replaces the first, and a tuple has the tag of its first tagged part.
                value @ (Value::Tagged(..) | Value::Tuple(_)) => value,
                value => Value::Tagged(Box::new(value), tag),
            }),
        ]
    })
}

/// Returns values that a careless encoding takes for `value`.
fn relatives(value: &Value) -> Vec<Value> {
    let mut found = vec![Value::Bytes(value.key().reveal().to_vec()), Value::Anonymous];
    match value {
        Value::Bytes(bytes) => found.push(Value::Bytes([&bytes[..], &[0]].concat())),
        Value::Number(negative, n) => {
            found.push(Value::Number(!negative && *n > 0, *n));
            found.push(Value::Number(*negative, n.rotate_left(64)));
        }
        Value::Address(IpAddr::V4(v4)) => {
            let mut octets = [0; 16];
            octets[..4].copy_from_slice(&v4.octets());
            found.push(subscriber(octets));
        }
        Value::Address(IpAddr::V6(v6)) => found.push(Value::Number(false, v6.to_bits())),
        #[cfg(feature = "uuid")]
        Value::Uuid(bytes) => found.push(subscriber(*bytes)),
        Value::Anonymous => found.push(Value::Tagged(Box::new(Value::Anonymous), 0)),
        Value::Tagged(inner, tag) => {
            found.push(Value::Tagged(inner.clone(), tag + 1));
            found.push((**inner).clone());
        }
        Value::Tuple(parts) => {
            found.push(Value::Tuple(parts.iter().rev().cloned().collect()));
            if let [first, second, rest @ ..] = &parts[..]
                && !rest.is_empty()
            {
                let pair = Value::Tuple(vec![first.clone(), second.clone()]);
                found.push(Value::Tuple([&[pair], rest].concat()));
            }
            for (index, part) in parts.iter().enumerate() {
                for relative in relatives(part) {
                    let mut parts = parts.clone();
                    parts[index] = relative;
                    found.push(Value::Tuple(parts));
                }
            }
        }
    }
    found
}

#[test]
fn different_values_make_different_keys() {
    let config = Config { cases: 1_000, ..Config::default() };
    seed::property("keys", config, (values(), values()), |(one, other)| {
        for other in relatives(&one).into_iter().chain([other]) {
            prop_assert_eq!(one.key() == other.key(), one == other, "{:?} {:?}", one, other);
        }
        let shown = one.key().display_revealed().to_string();
        let begins = shown.starts_with('(') || shown.starts_with("digest:");
        prop_assert!(begins || !matches!(one, Value::Tuple(_)), "{:?} {}", one, shown);
        Ok(())
    });
}

#[test]
fn an_integer_is_the_same_key_in_every_type() {
    let key = Key::from(42_u64);
    for same in [
        Key::from(42_u8),
        Key::from(42_u16),
        Key::from(42_u32),
        Key::from(42_u128),
        Key::from(42_usize),
        Key::from(42_i8),
        Key::from(42_i16),
        Key::from(42_i32),
        Key::from(42_i64),
        Key::from(42_i128),
        Key::from(42_isize),
    ] {
        assert_eq!(same, key);
    }
    assert_eq!(key.reveal(), b"\0n\0\0\0\0\0\0\0\x2a", "what a running service has stored stays");
    assert_eq!(Key::from(-1_i8), Key::from(-1_i128));
    assert_ne!(Key::from(-1_i64), Key::from(-1_i64 as u64));
    assert_ne!(Key::from(i128::MIN), Key::from(1_u128 << 127));
    assert_ne!(Key::from(u128::from(u64::MAX) + 1), Key::from(0));
}

#[test]
fn the_bytes_of_a_text_are_the_key_of_the_text() {
    let key = Key::from("abc");
    for same in [
        Key::from(b"abc"),
        Key::from(*b"abc"),
        Key::from(&b"abc"[..]),
        Key::from(b"abc".to_vec()),
        Key::from(&b"abc".to_vec()),
        Key::from(Bytes::from_static(b"abc")),
        Key::from(&Bytes::from_static(b"abc")),
        Key::from("abc".to_owned()),
        Key::from(&"abc".to_owned()),
        Key::from(std::borrow::Cow::Borrowed("abc")),
        Key::from(&HeaderValue::from_static("abc")),
    ] {
        assert_eq!(same, key);
    }
}

#[test]
fn addresses_of_each_type_agree() {
    let (v4, v6) = (Ipv4Addr::new(192, 0, 2, 1), "2001:db8::1".parse::<Ipv6Addr>().unwrap());
    assert_eq!(Key::from(v4), Key::from(IpAddr::V4(v4)));
    assert_eq!(Key::from(v6), Key::from(IpAddr::V6(v6)));
    assert_eq!(Key::from(v4), Key::from(v4.to_ipv6_mapped()));
    assert_eq!(Key::from(v6), Key::from("2001:db8::ffff:1".parse::<IpAddr>().unwrap()));
    assert_ne!(Key::from(v6), Key::from("2001:db8:0:1::1".parse::<IpAddr>().unwrap()));
    assert_eq!(Key::from(v4), Key::from("2002:c000:201::7".parse::<IpAddr>().unwrap()), "6to4");
}

#[test]
fn a_closure_returns_any_of_them() {
    let (parts, ()) = Request::new(()).into_parts();
    let tuple = by::constant(("acme", 7_i64, [1_u8, 2]));
    assert_eq!(tuple(&parts), Identity::from(("acme", 7_u32, vec![1, 2])));
    assert!(matches!(Identity::from(Some(7_i64)), Identity::Known(key) if key == Key::from(7)));
}

#[test]
fn a_revealed_key_is_readable() {
    let shown = |key: Key| key.display_revealed().to_string();
    assert_eq!(shown(Key::from("alice@example.com")), "alice@example.com");
    assert_eq!(shown(Key::from("Zoë\n\u{7}\x1b[2J")), r#""Zoë\n\u{7}\u{1b}[2J""#);
    assert_eq!(shown(Key::from(b"\xff\xfe")), "bytes:fffe");
    // A text does not look like another key.
    for text in [
        "",
        "42",
        "-1",
        "192.0.2.1",
        "::1",
        "anonymous",
        "(a, b)",
        "a,b",
        "#1f2e3d4c",
        " a",
        "bytes:ff",
    ] {
        assert_eq!(shown(Key::from(text)), format!("{text:?}"));
    }
    assert_eq!(shown(Key::from(("a, b", 1))), "(\"a, b\", 1)");
    assert_eq!(shown(Key::from(u128::MAX)), u128::MAX.to_string());
    assert_eq!(shown(Key::from(7)), "7");
    assert_eq!(shown(Key::from(i128::MIN)), i128::MIN.to_string());
    assert_eq!(shown(Key::from(Ipv4Addr::new(192, 0, 2, 1))), "192.0.2.1");
    assert_eq!(shown(Key::from("2001:db8::1".parse::<IpAddr>().unwrap())), "2001:db8::");
    assert_eq!(shown(Key::ANONYMOUS), "anonymous");
    assert_eq!(shown(Key::from("a").tagged("t")), "a");
    let nested = Key::from((("a", -1), Key::from("b").tagged("t"), Key::ANONYMOUS));
    assert_eq!(shown(nested), "((a, -1), b, anonymous)");
    for long in [Key::from("x".repeat(47)), Key::from(("x".repeat(40), "y"))] {
        let digest = shown(long);
        assert_eq!(digest.strip_prefix("digest:").map(str::len), Some(32), "{digest}");
    }
    #[cfg(feature = "uuid")]
    {
        let id = uuid::uuid!("67e55044-10b1-426f-9247-bb680e5fe0c8");
        assert_eq!(shown(Key::from(id)), id.to_string());
        assert_ne!(Key::from(id), Key::from(id.to_string()));
    }
    let secret = Key::from(("alice", 123_456));
    assert!(!format!("{secret:?}").contains("alice") && !format!("{secret:?}").contains("123456"));
}

#[test]
fn the_case_of_a_header_name_does_not_matter() {
    let request = Request::get("/").header("x-api-key", "a").body(()).unwrap();
    let (parts, ()) = request.into_parts();
    for name in ["X-API-Key", "x-api-key", "X-Api-KEY"] {
        assert_eq!(by::header(name)(&parts), Identity::from("a"), "{name}");
    }
}

#[test]
#[should_panic(expected = "header name is \"x api key\", allowed are")]
fn a_wrong_header_name_fails_when_the_rule_is_made() {
    let _ = by::header("x api key");
}
