//! JSON lines: of nginx, Caddy, Envoy and others.

use memchr::memchr2;

use super::super::{
    Entry,
    entry::{Name, Span},
    roles::{Rank, Role, Roles},
};

/// The most objects inside each other.
const MAX_DEPTH: usize = 16;
/// The longest path of a name. Fields with a longer one are left out.
const MAX_NAME_BYTES: usize = 256;
/// The most fields of a line whose roles are kept for the next line.
const MAX_LAYOUT: usize = 128;

/// The parser of JSON lines.
#[derive(Debug)]
pub(super) struct Json {
    roles: Roles,
    /// The names of the last line in their order, with their roles. Most lines of a log have the same.
    layout: Vec<(String, Option<(Role, Rank)>)>,
    /// The buffer for the path of nested names.
    path: String,
}

/// The place in a line that is being read.
struct Cursor<'a> {
    line: &'a str,
    at: usize,
    depth: usize,
    /// The path of the object, with a point at the end.
    path: String,
    /// The number of fields that were read.
    fields: usize,
}

/// A text of JSON, without its quotes.
struct Text {
    span: Span,
    has_escapes: bool,
}

const CUT: &str = "the JSON ends too early";

impl Json {
    pub(super) fn new(roles: Roles) -> Self {
        Self { roles, layout: Vec::new(), path: String::new() }
    }

    pub(super) fn parse(&mut self, line: &str, entry: &mut Entry) -> Result<(), &'static str> {
        let mut path = std::mem::take(&mut self.path);
        path.clear();
        let mut cursor = Cursor { line, at: 0, depth: 0, path, fields: 0 };
        let parsed = cursor.line(entry, self);
        self.path = cursor.path;
        parsed
    }

    /// Returns the role of the name of a field, by its place in the line.
    fn role(&mut self, place: usize, name: &str) -> Option<(Role, Rank)> {
        if let Some((known, role)) = self.layout.get(place)
            && known == name
        {
            return *role;
        }
        let role = self.roles.of(name);
        if place < self.layout.len() {
            self.layout[place] = (name.to_owned(), role);
        } else if place < MAX_LAYOUT {
            self.layout.push((name.to_owned(), role));
        }
        role
    }
}

impl Cursor<'_> {
    /// Reads a line, which is one object.
    fn line(&mut self, entry: &mut Entry, json: &mut Json) -> Result<(), &'static str> {
        if self.skip_spaces() != Some(b'{') {
            return Err("no JSON object");
        }
        self.object(entry, json)?;
        match self.skip_spaces() {
            None => Ok(()),
            Some(_) => Err("a text follows the JSON object"),
        }
    }

    /// Reads an object, and adds its fields to the entry.
    fn object(&mut self, entry: &mut Entry, json: &mut Json) -> Result<(), &'static str> {
        self.enter()?;
        if self.skip_spaces() == Some(b'}') {
            return self.leave();
        }
        loop {
            if self.skip_spaces() != Some(b'"') {
                return Err("a field has no name");
            }
            let name = self.text()?;
            if self.skip_spaces() != Some(b':') {
                return Err("a name has no value");
            }
            self.at += 1;
            let name = self.name(name, entry)?;
            self.value(name, entry, json)?;
            if !self.goes_on(b'}')? {
                return self.leave();
            }
        }
    }

    /// Returns the place of the full name of a field, or `None` if it is too long.
    fn name(&self, name: Text, entry: &mut Entry) -> Result<Option<Span>, &'static str> {
        if !name.has_escapes && self.path.is_empty() {
            let is_short = name.span.end - name.span.start <= MAX_NAME_BYTES as u32;
            return Ok(is_short.then_some(name.span));
        }
        let span = name.unescaped(self.line, entry)?;
        let length = (span.end - span.start) as usize + self.path.len();
        if length > MAX_NAME_BYTES {
            return Ok(None);
        }
        let start = self.line.len() + entry.extra.len();
        entry.extra.push_str(&self.path);
        if name.has_escapes {
            let at = span.start as usize - self.line.len();
            entry.extra.extend_from_within(at..at + (span.end - span.start) as usize);
        } else {
            entry.extra.push_str(name.written(self.line));
        }
        Ok(Some(Span::of(start..start + length)))
    }

    /// Reads the value of a field. An object has fields of its own. The value of an array is its first element.
    fn value(
        &mut self,
        name: Option<Span>,
        entry: &mut Entry,
        json: &mut Json,
    ) -> Result<(), &'static str> {
        match self.skip_spaces().ok_or(CUT)? {
            b'{' => {
                let outer = self.path.len();
                match name {
                    Some(name) => {
                        self.path.clear();
                        self.path.push_str(entry.text_with(self.line, name));
                        self.path.push('.');
                    }
                    // No name below this one is short enough.
                    None => self.path.extend(std::iter::repeat_n('.', MAX_NAME_BYTES + 1)),
                }
                self.object(entry, json)?;
                self.path.truncate(outer);
                Ok(())
            }
            b'[' => {
                self.enter()?;
                if self.skip_spaces() == Some(b']') {
                    return self.leave();
                }
                self.value(name, entry, json)?;
                while self.goes_on(b']')? {
                    self.skip_value()?;
                }
                self.leave()
            }
            b'"' => {
                let text = self.text()?;
                let value = text.unescaped(self.line, entry)?;
                self.push(name, value, entry, json);
                Ok(())
            }
            _ => {
                let value = self.scalar()?;
                if entry.text_with(self.line, value) != "null" {
                    self.push(name, value, entry, json);
                }
                Ok(())
            }
        }
    }

    fn push(&mut self, name: Option<Span>, value: Span, entry: &mut Entry, json: &mut Json) {
        let Some(name) = name else { return };
        let role = json.role(self.fields, entry.text_with(self.line, name));
        self.fields += 1;
        entry.push(self.line, Name::Text(name), value, role);
    }

    /// Reads a value of which nothing is kept.
    fn skip_value(&mut self) -> Result<(), &'static str> {
        match self.skip_spaces().ok_or(CUT)? {
            open @ (b'{' | b'[') => {
                let close = if open == b'{' { b'}' } else { b']' };
                self.enter()?;
                if self.skip_spaces() == Some(close) {
                    return self.leave();
                }
                loop {
                    if open == b'{' {
                        if self.skip_spaces() != Some(b'"') {
                            return Err("a field has no name");
                        }
                        self.text()?;
                        if self.skip_spaces() != Some(b':') {
                            return Err("a name has no value");
                        }
                        self.at += 1;
                    }
                    self.skip_value()?;
                    if !self.goes_on(close)? {
                        return self.leave();
                    }
                }
            }
            b'"' => self.text().map(|_| ()),
            _ => self.scalar().map(|_| ()),
        }
    }

    /// Enters an object or an array.
    fn enter(&mut self) -> Result<(), &'static str> {
        self.at += 1;
        self.depth += 1;
        if self.depth > MAX_DEPTH { Err("the JSON is nested too deep") } else { Ok(()) }
    }

    /// Leaves an object or an array, at its closing bracket.
    fn leave(&mut self) -> Result<(), &'static str> {
        self.at += 1;
        self.depth -= 1;
        Ok(())
    }

    /// Reads a comma, and returns true, or stays at the closing bracket.
    fn goes_on(&mut self, close: u8) -> Result<bool, &'static str> {
        match self.skip_spaces() {
            Some(b',') => {
                self.at += 1;
                Ok(true)
            }
            Some(byte) if byte == close => Ok(false),
            Some(_) => Err("no comma between values"),
            None => Err(CUT),
        }
    }

    /// Returns the next byte that is no space, without reading it.
    fn skip_spaces(&mut self) -> Option<u8> {
        let bytes = self.line.as_bytes();
        while matches!(bytes.get(self.at), Some(b' ' | b'\t' | b'\r' | b'\n')) {
            self.at += 1;
        }
        bytes.get(self.at).copied()
    }

    /// Reads a text in quotes.
    fn text(&mut self) -> Result<Text, &'static str> {
        let bytes = self.line.as_bytes();
        let start = self.at + 1;
        let mut at = start;
        let mut has_escapes = false;
        while let Some(found) = bytes.get(at..).and_then(|rest| memchr2(b'"', b'\\', rest)) {
            let end = at + found;
            if bytes[end] == b'"' {
                self.at = end + 1;
                return Ok(Text { span: Span::of(start..end), has_escapes });
            }
            has_escapes = true;
            at = end + 2;
        }
        Err(CUT)
    }

    /// Reads a number, `true`, `false` or `null`.
    fn scalar(&mut self) -> Result<Span, &'static str> {
        let start = self.at;
        let rest = &self.line.as_bytes()[start..];
        let length = rest.iter().position(|it| matches!(it, b',' | b'}' | b']' | b' ' | b'\t'));
        let length = length.unwrap_or(rest.len());
        self.at = start + length;
        match &rest[..length] {
            b"true" | b"false" | b"null" => {}
            [b'-' | b'0'..=b'9', digits @ ..]
                if digits.iter().all(|it| it.is_ascii_digit() || b"+-.eE".contains(it)) => {}
            _ => return Err("a value is no JSON"),
        }
        Ok(Span::of(start..self.at))
    }
}

impl Text {
    fn written<'a>(&self, line: &'a str) -> &'a str {
        line.get(self.span.start as usize..self.span.end as usize).unwrap_or_default()
    }

    /// Returns the place of this text without escapes.
    fn unescaped(&self, line: &str, entry: &mut Entry) -> Result<Span, &'static str> {
        if !self.has_escapes {
            return Ok(self.span);
        }
        let quoted = line.get(self.span.start as usize - 1..self.span.end as usize + 1);
        let text: String = serde_json::from_str(quoted.unwrap_or_default())
            .map_err(|_| "a text has an escape that is no JSON")?;
        Ok(entry.add_text(line, &text))
    }
}
