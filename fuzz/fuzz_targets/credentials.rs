//! Keys from headers of arbitrary bytes: equal only if the values are, and a client that repeats a
//! header does not choose another extractor.
#![no_main]

use http::{HeaderValue, Request, request::Parts};
use libfuzzer_sys::fuzz_target;
use plimsoll::{
    Key,
    by::{self, Or},
    key::Identity,
};

fn request(name: &'static str, lines: &[&[u8]]) -> (Parts, usize) {
    let (mut parts, ()) = Request::new(()).into_parts();
    for value in lines.iter().filter_map(|line| HeaderValue::from_bytes(line).ok()) {
        parts.headers.append(name, value);
    }
    let count = parts.headers.len();
    (parts, count)
}

fuzz_target!(|bytes: &[u8]| {
    let lines: Vec<&[u8]> = bytes.split(|byte| *byte == b'\n').collect();
    let fallback = Identity::from("the other extractor");
    for (name, extractor) in [
        (
            "x-api-key",
            Box::new(by::header("x-api-key").or(by::constant("the other extractor")))
                as Box<dyn Fn(&Parts) -> Identity>,
        ),
        ("authorization", Box::new(by::bearer_token().or(by::constant("the other extractor")))),
    ] {
        let (parts, count) = request(name, &lines);
        let found = extractor(&parts);
        let mut values = parts.headers.get_all(name).iter();
        let first = values.next();
        if values.any(|value| Some(value) != first) {
            assert_eq!(found, Identity::Known(Key::ANONYMOUS));
            continue;
        }
        let token = |value: &[u8]| -> Option<Vec<u8>> {
            match name {
                "x-api-key" => Some(value.to_vec()),
                _ if value.len() < 7 || !value[..7].eq_ignore_ascii_case(b"bearer ") => None,
                _ => Some(value[7..].trim_ascii().to_vec()),
            }
        };
        let token = first.and_then(|value| token(value.as_bytes())).filter(|text| !text.is_empty());
        assert_eq!(found, token.map_or(fallback, |token| Identity::from(&token[..])));
        assert!(count == 1 || first.is_none() || parts.headers.len() == count);
    }
    // Two texts are one key only if they are equal, and no text is a key of another kind.
    if let [one, other, ..] = &lines[..] {
        let (a, b) = (Key::from(*one), Key::from(*other));
        assert_eq!(a == b, one == other);
        assert_ne!(Key::from((a, b)), a);
        assert_eq!(Key::from((a, b)) == Key::from((b, a)), one == other);
    }
    let key = Key::from(lines[0]);
    assert!(key != Key::ANONYMOUS && key.reveal().len() <= 46);
    assert_ne!(key, Key::from(u64::from(bytes.len() as u32)));
    assert_ne!(key, Key::from(std::net::IpAddr::from([127, 0, 0, 1])));
});
