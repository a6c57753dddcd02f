//! Lists of Strings with parameters (RFC 9651), as draft 11 writes them.
//!
//! The bytes come from a server that is not trusted, so the parser bounds its input and its output. It
//! ignores a whole field if one member is malformed (section 4.2). Draft 11 does not use Inner Lists and
//! Display Strings, so the parser treats them as errors.

use http::{HeaderMap, HeaderName, HeaderValue};

/// The length of the longest field that is read, in bytes.
const MAX_BYTES: usize = 8 << 10;
/// The largest number of members of a field. A field with more members is ignored.
const MAX_MEMBERS: usize = 64;
/// The parameters that are kept.
const KNOWN: [&[u8]; 3] = [b"r", b"t", b"w"];

/// A member of a list: the name of a policy, and its parameters.
pub(super) struct Member {
    /// The String or Token, as it is written.
    pub(super) name: Vec<u8>,
    /// The [`KNOWN`] parameters that are Integers.
    integers: Vec<(&'static [u8], i64)>,
}

impl Member {
    /// Returns the value of a [`KNOWN`] parameter. If it is repeated, the last one counts (section
    /// 4.2.3.2).
    pub(super) fn integer(&self, key: &str) -> Option<i64> {
        let found = self.integers.iter().find(|(name, _)| *name == key.as_bytes());
        found.map(|(_, value)| *value)
    }
}

/// Parses all lines of a field as one list. Returns `None` if it is missing, malformed or too long.
pub(super) fn list(headers: &HeaderMap, name: &HeaderName) -> Option<Vec<Member>> {
    let lines: Vec<&[u8]> = headers.get_all(name).iter().map(HeaderValue::as_bytes).collect();
    if lines.is_empty() || lines.iter().map(|line| line.len()).sum::<usize>() > MAX_BYTES {
        return None;
    }
    Parser(&lines.join(&b","[..])).list()
}

/// The rest of the input.
struct Parser<'f>(&'f [u8]);

impl<'f> Parser<'f> {
    fn list(mut self) -> Option<Vec<Member>> {
        let mut members = Vec::new();
        self.skip(|byte| byte == b' ');
        while !self.0.is_empty() {
            if members.len() == MAX_MEMBERS {
                return None;
            }
            members.push(self.member()?);
            self.skip_blanks();
            if self.0.is_empty() {
                break;
            }
            self.expect(b',')?;
            self.skip_blanks();
            // A comma at the end is an error.
            self.0.first()?;
        }
        Some(members)
    }

    fn member(&mut self) -> Option<Member> {
        let Item::Name(name) = self.item()? else { return None };
        let mut integers = Vec::new();
        while self.expect(b';').is_some() {
            self.skip(|byte| byte == b' ');
            let (key, value) = self.parameter()?;
            // A later value replaces an earlier one, of whichever type they are.
            integers.retain(|(earlier, _)| *earlier != key);
            let known = KNOWN.into_iter().find(|known| *known == key);
            integers.extend(known.zip(value));
        }
        Some(Member { name: name.to_vec(), integers })
    }

    fn parameter(&mut self) -> Option<(&'f [u8], Option<i64>)> {
        self.0.first().filter(|byte| byte.is_ascii_lowercase() || **byte == b'*')?;
        let key = self.skip(|byte| {
            byte.is_ascii_lowercase() || byte.is_ascii_digit() || b"_-.*".contains(&byte)
        });
        if self.expect(b'=').is_none() {
            return Some((key, None)); // true
        }
        match self.item()? {
            Item::Integer(number) => Some((key, Some(number))),
            Item::Name(_) | Item::Other => Some((key, None)),
        }
    }

    fn item(&mut self) -> Option<Item<'f>> {
        match *self.0.first()? {
            b'"' => self.string(),
            b'-' | b'0'..=b'9' => self.number(),
            b'*' | b'a'..=b'z' | b'A'..=b'Z' => {
                let token = self.skip(|byte| {
                    byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~:/".contains(&byte)
                });
                Some(Item::Name(token))
            }
            b':' => {
                self.expect(b':')?;
                self.skip(|byte| byte.is_ascii_alphanumeric() || b"+/=".contains(&byte));
                self.expect(b':').map(|()| Item::Other)
            }
            b'?' => {
                self.expect(b'?')?;
                self.expect(b'0').or_else(|| self.expect(b'1')).map(|()| Item::Other)
            }
            b'@' => {
                self.expect(b'@')?;
                matches!(self.number()?, Item::Integer(_)).then_some(Item::Other)
            }
            _ => None,
        }
    }

    fn string(&mut self) -> Option<Item<'f>> {
        self.expect(b'"')?;
        let mut len = 0;
        loop {
            match self.0.get(len..)? {
                [b'"', ..] => break,
                [b'\\', b'"' | b'\\', ..] => len += 2,
                [b'\\', ..] => return None,
                [b' '..=b'~', ..] => len += 1,
                _ => return None,
            }
        }
        let (text, rest) = self.0.split_at_checked(len)?;
        self.0 = rest;
        self.expect(b'"').map(|()| Item::Name(text))
    }

    fn number(&mut self) -> Option<Item<'f>> {
        let sign = if self.expect(b'-').is_some() { -1 } else { 1 };
        let digits = self.skip(|byte| byte.is_ascii_digit());
        if self.expect(b'.').is_some() {
            let fraction = self.skip(|byte| byte.is_ascii_digit());
            let valid = (1..=12).contains(&digits.len()) && (1..=3).contains(&fraction.len());
            return valid.then_some(Item::Other);
        }
        if !(1..=15).contains(&digits.len()) {
            return None;
        }
        let number = digits.iter().fold(0, |number, digit| number * 10 + i64::from(digit - b'0'));
        Some(Item::Integer(sign * number))
    }

    /// Skips the bytes that `matches` accepts, and returns them.
    fn skip(&mut self, matches: impl Fn(u8) -> bool) -> &'f [u8] {
        let end = self.0.iter().position(|byte| !matches(*byte)).unwrap_or(self.0.len());
        let (skipped, rest) = self.0.split_at(end);
        self.0 = rest;
        skipped
    }

    fn skip_blanks(&mut self) {
        self.skip(|byte| byte == b' ' || byte == b'\t');
    }

    /// Skips this byte, or returns `None` if another one follows.
    fn expect(&mut self, byte: u8) -> Option<()> {
        self.0 = self.0.strip_prefix(&[byte])?;
        Some(())
    }
}

/// A value, with the types that this module distinguishes.
enum Item<'f> {
    /// A String without its quotes, or a Token.
    Name(&'f [u8]),
    Integer(i64),
    /// A Decimal, a Byte Sequence, a Boolean or a Date.
    Other,
}
