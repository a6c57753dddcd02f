//! The words of a line: texts between spaces, in quotes or in brackets.

use memchr::{memchr, memchr2};

use super::{
    Entry,
    columns::Columns,
    entry::{Name, Span},
};

/// The words of a line, from left to right.
#[derive(Debug)]
pub(super) struct Words<'a> {
    line: &'a str,
    at: usize,
}

/// A word, without its quotes or brackets.
#[derive(Debug, Clone, Copy)]
pub(super) struct Word {
    span: (usize, usize),
    is_quoted: bool,
    has_escapes: bool,
}

impl<'a> Words<'a> {
    pub(super) fn new(line: &'a str, at: usize) -> Self {
        Self { line, at }
    }

    /// Returns the next word, or `None` at the end of the line.
    pub(super) fn next(&mut self) -> Result<Option<Word>, &'static str> {
        let bytes = self.line.as_bytes();
        while bytes.get(self.at).is_some_and(|it| matches!(it, b' ' | b'\t')) {
            self.at += 1;
        }
        match bytes.get(self.at) {
            None => Ok(None),
            Some(b'"') => self.quoted().map(Some),
            Some(_) => {
                let start = self.at;
                let length = memchr2(b' ', b'\t', &bytes[start..]);
                self.at = length.map_or(bytes.len(), |it| start + it);
                let span = (start, self.at);
                Ok(Some(Word { span, is_quoted: false, has_escapes: false }))
            }
        }
    }

    /// Returns a word in brackets.
    pub(super) fn bracketed(&mut self) -> Option<Word> {
        let bytes = self.line.as_bytes();
        let start = self.at + 1;
        if bytes.get(self.at) != Some(&b'[') {
            return None;
        }
        let end = start + memchr(b']', &bytes[start..])?;
        self.at = end + 1;
        Some(Word { span: (start, end), is_quoted: false, has_escapes: false })
    }

    /// Returns a word in quotes. A quote ends the word if it has no backslash in front, and a space or the end of the
    /// line behind: some servers write the quotes of a client as they are.
    fn quoted(&mut self) -> Result<Word, &'static str> {
        let bytes = self.line.as_bytes();
        let start = self.at + 1;
        let mut at = start;
        let mut has_escapes = false;
        while let Some(found) = memchr2(b'"', b'\\', &bytes[at..]) {
            let end = at + found;
            if bytes[end] == b'\\' {
                has_escapes = true;
                at = (end + 2).min(bytes.len());
            } else if matches!(bytes.get(end + 1), None | Some(b' ' | b'\t')) {
                self.at = end + 1;
                return Ok(Word { span: (start, end), is_quoted: true, has_escapes });
            } else {
                at = end + 1;
            }
        }
        Err("a quote is not closed")
    }
}

impl Word {
    /// Returns the word between two places of the line.
    pub(super) fn between(start: usize, end: usize) -> Self {
        Self { span: (start, end), is_quoted: false, has_escapes: false }
    }

    /// Returns the word as it is written.
    pub(super) fn text<'a>(&self, line: &'a str) -> &'a str {
        line.get(self.span.0..self.span.1).unwrap_or_default()
    }

    pub(super) fn is_quoted(&self) -> bool {
        self.is_quoted
    }

    /// Adds this word to an entry as the value of a column.
    pub(super) fn push(&self, line: &str, entry: &mut Entry, columns: &Columns, column: usize) {
        let value = if self.has_escapes {
            let start = line.len() + entry.extra.len();
            unescape(self.text(line), &mut entry.extra);
            Span::of(start..line.len() + entry.extra.len())
        } else {
            Span::of(self.span.0..self.span.1)
        };
        entry.push(line, Name::Column(column as u16), value, columns.role(column));
    }
}

/// Writes a text without the escapes of Apache and nginx: `\"`, `\\`, `\t`, `\x22`. Bytes that are no UTF-8 become `�`.
fn unescape(text: &str, out: &mut String) {
    let mut rest = text.as_bytes();
    let mut bytes = Vec::new();
    while let Some(at) = memchr(b'\\', rest) {
        bytes.extend_from_slice(&rest[..at]);
        let (byte, length) = match &rest[at + 1..] {
            [b'x', a, b, ..] if a.is_ascii_hexdigit() && b.is_ascii_hexdigit() => {
                (hex(*a) * 16 + hex(*b), 4)
            }
            [b'n', ..] => (b'\n', 2),
            [b't', ..] => (b'\t', 2),
            [b'r', ..] => (b'\r', 2),
            [byte @ (b'"' | b'\\'), ..] => (*byte, 2),
            _ => (b'\\', 1),
        };
        bytes.push(byte);
        rest = &rest[at + length..];
    }
    bytes.extend_from_slice(rest);
    out.push_str(&String::from_utf8_lossy(&bytes));
}

fn hex(digit: u8) -> u8 {
    match digit {
        b'0'..=b'9' => digit - b'0',
        _ => digit.to_ascii_lowercase() - b'a' + 10,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn escapes_are_the_bytes_that_they_stand_for() {
        for (written, text) in [
            (r"a\x22b", "a\"b"),
            (r"\xC3\xA9t\xc3\xa9", "été"),
            (r#"\"quoted\""#, "\"quoted\""),
            (r"\\x22", "\\x22"),
            (r"tab\tnew\nline", "tab\tnew\nline"),
            (r"\xff", "\u{fffd}"),
            (r"\xg0\", r"\xg0\"),
            (r"\u00e9", r"\u00e9"),
        ] {
            let mut out = "kept".to_owned();
            unescape(written, &mut out);
            assert_eq!(out, format!("kept{text}"));
        }
    }

    #[test]
    fn words_end_where_servers_end_them() {
        let line = r#"a  "b c" "d"e f" "g\" h" "" [i"#;
        let mut words = Words::new(line, 0);
        let mut texts = Vec::new();
        while let Some(word) = words.next().unwrap() {
            texts.push(word.text(line));
        }
        assert_eq!(texts, ["a", "b c", r#"d"e f"#, r#"g\" h"#, "", "[i"]);
        assert!(Words::new(r#""open"#, 0).next().is_err());
        assert!(Words::new(r#""open\"#, 0).next().is_err());
    }
}
