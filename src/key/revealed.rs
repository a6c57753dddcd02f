//! A key in the clear, for people.

use std::{
    fmt::{self, Write},
    net::{Ipv4Addr, Ipv6Addr},
};

use super::{
    Key,
    from::{NEGATIVE, NUMBER},
    key::{HEADER_BYTES, Kind, PAIR, TAGGED_PART},
};

/// The readable form of a [`Key`]. [`Key::display_revealed`] creates it.
#[derive(Clone, Copy)]
pub struct RevealedKey<'k>(&'k Key);

impl Key {
    /// Returns the key in a form that people can read, for a page of an administrator or a support
    /// tool. Do not log it if keys are secret: [`Debug`](fmt::Debug) redacts them.
    ///
    /// | key of | printed as |
    /// |---|---|
    /// | a text | the text; control characters are escaped, as in `\n` |
    /// | bytes that are not UTF-8 | `bytes:fffe` |
    /// | a number, an address, a UUID | `-42`, `192.0.2.1`, `67e55044-10b1-426f-9247-bb680e5fe0c8` |
    /// | a tuple or [pair](Self::paired) | `(alice, 192.0.2.1)` |
    /// | a long text, or several long parts | `digest:4bf1..`, because the text is not kept |
    /// | an unknown client | `anonymous` |
    ///
    /// A [tag](Self::tagged) is not printed. Keys of different types can look alike, such as the text `42`
    /// and the number 42. An attacker may have written the text, so a page must escape it, and a program
    /// must not parse it.
    ///
    /// ```
    /// use std::net::Ipv4Addr;
    /// use plimsoll::Key;
    ///
    /// let key = Key::from(("alice", 42, Ipv4Addr::LOCALHOST));
    /// assert_eq!(key.display_revealed().to_string(), "(alice, 42, 127.0.0.1)");
    /// assert!(!format!("{key:?}").contains("alice"));
    /// ```
    #[must_use]
    pub fn display_revealed(&self) -> RevealedKey<'_> {
        RevealedKey(self)
    }
}

impl fmt::Display for RevealedKey<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        reveal(self.0.kind() as u8, self.0.reveal(), f)
    }
}

/// Prints the key, like [`Display`](fmt::Display).
impl fmt::Debug for RevealedKey<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

fn reveal(kind: u8, bytes: &[u8], f: &mut fmt::Formatter<'_>) -> fmt::Result {
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
    text.chars().try_for_each(|character| match character.is_control() {
        true => write!(f, "{}", character.escape_default()),
        false => f.write_char(character),
    })
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
