//! The form in which a key is shown: [`Key::display_revealed`], or the digest of a key.

use plimsoll::Key;

/// The form of a text that stands for a key.
pub(crate) enum Written {
    /// The key that all unidentified clients share.
    Anonymous,
    /// A digest, from which no key can be computed.
    Digest,
    /// The key of bytes that are not UTF-8.
    Bytes(Key),
    /// A text in quotes, without them.
    Quoted(String),
    /// A text as it is.
    Plain,
}

impl Written {
    pub(crate) fn of(text: &str) -> Self {
        if text == "anonymous" {
            return Self::Anonymous;
        }
        let is_short = bytes("#", text).is_some_and(|it| it.len() == 4);
        if is_short || bytes("digest:", text).is_some_and(|it| it.len() == 16) {
            return Self::Digest;
        }
        let bytes = bytes("bytes:", text).map(|bytes| Self::Bytes(Key::from(bytes)));
        bytes.or_else(|| unquoted(text).map(Self::Quoted)).unwrap_or(Self::Plain)
    }
}

/// Splits a text into the parts of a tuple, which are separated by commas. The last part of a text that is
/// not in parentheses may contain commas. Returns `None` if there are fewer or more parts than `count`.
pub(crate) fn parts(text: &str, count: usize) -> Option<Vec<&str>> {
    let text = text.trim();
    let inner = text.strip_prefix('(').and_then(|it| it.strip_suffix(')'));
    let (text, commas) = match inner.map(|inner| (inner, commas(inner))) {
        Some((inner, (commas, true))) if commas.len() + 1 == count => (inner, commas),
        _ => (text, commas(text).0),
    };
    let mut parts = Vec::new();
    let mut start = 0;
    for comma in commas.into_iter().take(count.saturating_sub(1)) {
        parts.push(text[start..comma].trim());
        start = comma + 1;
    }
    parts.push(text[start..].trim());
    (parts.len() == count).then_some(parts)
}

/// Returns the places of the commas outside of quotes and parentheses, and whether each parenthesis has the
/// other one. Quotes and parentheses inside of a word belong to the word.
fn commas(text: &str) -> (Vec<usize>, bool) {
    let mut commas = Vec::new();
    let mut depth = 0_usize;
    let mut is_balanced = true;
    let mut is_quoted = false;
    let mut is_escaped = false;
    let mut is_start = true;
    for (place, character) in text.char_indices() {
        let was_start = is_start && !is_quoted;
        is_start = was_start && (character.is_whitespace() || character == '(');
        match character {
            _ if is_escaped => is_escaped = false,
            '\\' if is_quoted => is_escaped = true,
            '"' if is_quoted => is_quoted = false,
            _ if is_quoted => {}
            '"' if was_start => is_quoted = true,
            '(' if was_start => depth += 1,
            ')' if depth > 0 => depth -= 1,
            ')' => is_balanced = false,
            ',' => {
                is_start = true;
                if depth == 0 {
                    commas.push(place);
                }
            }
            _ => {}
        }
    }
    (commas, is_balanced && depth == 0)
}

/// Returns the bytes of the hexadecimal digits behind a prefix.
fn bytes(prefix: &str, text: &str) -> Option<Vec<u8>> {
    let digits = text.strip_prefix(prefix)?.as_bytes();
    if !digits.len().is_multiple_of(2) || !digits.iter().all(u8::is_ascii_hexdigit) {
        return None;
    }
    let pairs = digits.chunks(2);
    pairs.map(|pair| u8::from_str_radix(str::from_utf8(pair).ok()?, 16).ok()).collect()
}

/// Returns the text that [`Debug`](std::fmt::Debug) has written in quotes.
fn unquoted(text: &str) -> Option<String> {
    let quoted = text.strip_prefix('"')?.strip_suffix('"')?;
    let mut characters = quoted.chars();
    let mut text = String::new();
    while let Some(character) = characters.next() {
        text.push(match character {
            '"' => return None,
            '\\' => match characters.next()? {
                'n' => '\n',
                'r' => '\r',
                't' => '\t',
                '0' => '\0',
                'u' => {
                    let (digits, rest) = characters.as_str().strip_prefix('{')?.split_once('}')?;
                    characters = rest.chars();
                    char::from_u32(u32::from_str_radix(digits, 16).ok()?)?
                }
                other @ ('"' | '\'' | '\\') => other,
                _ => return None,
            },
            other => other,
        });
    }
    Some(text)
}
