//! The bytes of keys that are not made from a text, and their readable form.

use std::{
    fmt::{self, Write},
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
};

/// The meaning of the bytes of a key.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub(super) enum Kind {
    Plain,
    Digest,
    /// The digest of two keys.
    Pair,
    Anonymous,
}

/// The length of the header of an encoded key: the kind, and a length byte.
pub(super) const HEADER_BYTES: usize = 2;

/// The prefix of the key of several keys. The encodings of the keys follow.
pub(super) const PAIR: [u8; 2] = *b"\0p";

/// The bit of the kind byte that marks a part with a tag, in the key of several keys.
pub(super) const TAGGED_PART: u8 = 0x80;

/// The prefix of the key of a number. The bytes of the number follow, in big-endian order.
pub(super) const NUMBER: [u8; 2] = *b"\0n";
/// The prefix of the key of a negative number. The bytes of its magnitude follow.
pub(super) const NEGATIVE: [u8; 2] = *b"\0m";

/// Prints a key of this kind and with these bytes in the clear.
pub(super) fn reveal(kind: u8, bytes: &[u8], f: &mut fmt::Formatter<'_>) -> fmt::Result {
    if kind == Kind::Anonymous as u8 {
        return f.write_str("anonymous");
    }
    if kind != Kind::Plain as u8 {
        return hex("digest:", bytes, f);
    }
    let Some((prefix, rest)) = bytes.split_first_chunk::<2>().filter(|(prefix, _)| prefix[0] == 0)
    else {
        return text(bytes, f);
    };
    match (*prefix, rest.len()) {
        (NUMBER, _) => write!(f, "{}", number(rest)),
        (NEGATIVE, _) => write!(f, "-{}", number(rest)),
        (PAIR, _) => parts(rest, f),
        ([_, b'u'], _) => uuid(rest, f),
        (_, 4) => write!(f, "{}", Ipv4Addr::from(number(rest) as u32)),
        _ => write!(f, "{}", Ipv6Addr::from(number(rest))),
    }
}

fn text(bytes: &[u8], f: &mut fmt::Formatter<'_>) -> fmt::Result {
    let Ok(text) = str::from_utf8(bytes) else { return hex("bytes:", bytes, f) };
    if needs_quotes(text) { write!(f, "{text:?}") } else { f.write_str(text) }
}

/// Returns whether a text would look like another key, or has characters that are not visible.
fn needs_quotes(text: &str) -> bool {
    text.is_empty()
        || text == "anonymous"
        || text.trim() != text
        || ["#", "digest:", "bytes:"].iter().any(|prefix| text.starts_with(prefix))
        || text.contains([',', '(', ')'])
        || text.contains(|it: char| it != '\'' && it.escape_debug().len() > 1)
        || text.parse::<i128>().is_ok()
        || text.parse::<u128>().is_ok()
        || text.parse::<IpAddr>().is_ok()
}

fn hex(prefix: &str, bytes: &[u8], f: &mut fmt::Formatter<'_>) -> fmt::Result {
    f.write_str(prefix)?;
    bytes.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
}

fn number(bytes: &[u8]) -> u128 {
    bytes.iter().fold(0, |number, byte| number << 8 | u128::from(*byte))
}

fn uuid(bytes: &[u8], f: &mut fmt::Formatter<'_>) -> fmt::Result {
    bytes.iter().enumerate().try_for_each(|(index, byte)| {
        let dash = if [4, 6, 8, 10].contains(&index) { "-" } else { "" };
        write!(f, "{dash}{byte:02x}")
    })
}

/// Prints the keys whose encodings are concatenated in `rest`.
fn parts(mut rest: &[u8], f: &mut fmt::Formatter<'_>) -> fmt::Result {
    let mut separator = "(";
    while let Some(([kind, len], after)) = rest.split_first_chunk::<HEADER_BYTES>() {
        let tag_bytes = if kind & TAGGED_PART == 0 { 0 } else { 8 };
        let Some((bytes, after)) = after.split_at_checked(usize::from(*len)) else { break };
        f.write_str(separator)?;
        reveal(kind & !TAGGED_PART, bytes, f)?;
        (rest, separator) = (after.get(tag_bytes..).unwrap_or_default(), ", ");
    }
    f.write_char(')')
}
