//! JSON as a tree of values.

use std::{collections::HashSet, ops::Range};

use serde::Deserialize;
use serde_json::value::RawValue;

use super::{Entries, Mistake, Node, node::Value};

pub(super) fn parse(text: &str) -> Result<Node, Mistake> {
    let raw = serde_json::from_str(text).map_err(|error| syntax(text, &error))?;
    Reader { text }.node(raw, 1)
}

/// Reads a part of a text, whose place is this one.
fn read<'t, T: Deserialize<'t>>(part: &'t str, span: &Range<usize>) -> Result<T, Mistake> {
    serde_json::from_str(part).map_err(|error| Mistake::new(error).at(span.clone()))
}

fn syntax(text: &str, error: &serde_json::Error) -> Mistake {
    let before: usize =
        text.split_inclusive('\n').take(error.line().saturating_sub(1)).map(str::len).sum();
    let at = before + error.column().saturating_sub(1);
    // The message ends with the place.
    let message = error.to_string();
    let message = message.rsplit_once(" at line ").map_or(&*message, |(message, _)| message);
    Mistake::new(message).at(at..at)
}

/// Reads the values of a text. Each [`RawValue`] is a part of the text, and so shows its place.
struct Reader<'t> {
    text: &'t str,
}

impl<'t> Reader<'t> {
    fn node(&self, raw: &'t RawValue, depth: usize) -> Result<Node, Mistake> {
        let part = raw.get();
        let start = part.as_ptr() as usize - self.text.as_ptr() as usize;
        let span = start..start + part.len();
        if depth > Node::MAX_DEPTH {
            return Err(Mistake::too_deep().at(span));
        }
        let value = match part.as_bytes().first() {
            Some(b'{') => {
                let fields = read(part, &span)?;
                Value::Table(self.fields(fields, start + 1, depth)?)
            }
            Some(b'[') => {
                let items: Vec<&RawValue> = read(part, &span)?;
                let items: Result<_, _> =
                    items.into_iter().map(|item| self.node(item, depth + 1)).collect();
                Value::List(items?)
            }
            Some(b'"') => Value::Text(read(part, &span)?),
            Some(b't' | b'f') => Value::Bool(part == "true"),
            Some(b'n') => Value::Null,
            _ => match part.parse() {
                Ok(number) => Value::Integer(number),
                Err(_) => Value::Float(part.parse().unwrap_or(f64::NAN)),
            },
        };
        Ok(Node::new(value, span))
    }

    /// Reads the fields of a table. `at` is the place of the first byte inside of its braces.
    fn fields(
        &self,
        raw: Entries<&'t RawValue, String>,
        mut at: usize,
        depth: usize,
    ) -> Result<Vec<(Node, Node)>, Mistake> {
        let mut fields: Vec<(Node, Node)> = Vec::new();
        let mut names = HashSet::new();
        for (name, value) in raw.0 {
            let value = self.node(value, depth + 1)?;
            // Between two values there is a comma, space, the name and a colon.
            let between = &self.text[at..value.span.start];
            let start = at + between.find('"').unwrap_or_default();
            let end = at + between.rfind('"').map_or(0, |quote| quote + 1);
            at = value.span.end;
            let is_new = names.insert(name.clone());
            let name = Node::new(Value::Text(name), start..end.max(start));
            if !is_new {
                return Err(Mistake::new("the name is there twice").at(name.span));
            }
            fields.push((name, value));
        }
        Ok(fields)
    }
}
