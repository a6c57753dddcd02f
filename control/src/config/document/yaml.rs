//! YAML as a tree of values.

use std::{fmt, mem, ops::Range};

use serde::{
    Deserialize, Deserializer,
    de::{Error, MapAccess, SeqAccess, Visitor},
};
use serde_saphyr::{DuplicateKeyPolicy, Location, Spanned, budget, options};

use super::{Mistake, Node, node::Value};

/// The values of a file, with those that its aliases repeat.
const MAX_NODES: usize = 400_000;

pub(super) fn parse(text: &str) -> Result<Node, Mistake> {
    // The words `yes`, `no`, `on` and `off` are texts, as in YAML 1.2, unless a truth value is needed.
    let options = options! {
        budget: budget! { max_depth: 2 * Node::MAX_DEPTH, max_nodes: MAX_NODES },
        duplicate_keys: DuplicateKeyPolicy::Error,
        strict_booleans: true,
        with_snippet: false,
    };
    let read = serde_saphyr::from_str_with_options::<Spanned<Raw>>(text, options);
    let read = read.map_err(|error| {
        let place = error.location().map(|location| place(text, location));
        Mistake { span: place, ..mistake(&error.to_string()) }
    })?;
    let mut node = node(read);
    mark_yaml_1_1(&mut node, text);
    Ok(node)
}

/// Marks the values without quotes that YAML 1.1 reads differently.
fn mark_yaml_1_1(node: &mut Node, text: &str) {
    let written = text.get(node.span.clone()).unwrap_or_default();
    match &mut node.value {
        Value::Text(word) if word == written => {
            let value = match &*word.to_lowercase() {
                "y" | "yes" | "on" => true,
                "n" | "no" | "off" => false,
                _ => return,
            };
            node.value = Value::Word(mem::take(word), value);
        }
        Value::Float(number) => {
            let digits = written.trim_start_matches(['-', '+']);
            if digits.len() > 1 && digits.bytes().all(|it| it.is_ascii_digit()) {
                node.value = Value::Padded(*number);
            }
        }
        Value::List(items) => items.iter_mut().for_each(|item| mark_yaml_1_1(item, text)),
        Value::Table(fields) => {
            fields.iter_mut().for_each(|(_, value)| mark_yaml_1_1(value, text));
        }
        _ => {}
    }
}

/// Returns the [mistake](Mistake) that the parser describes, in words for people who do not know the parser.
fn mistake(message: &str) -> Mistake {
    match message {
        _ if message.starts_with("budget breached: Nodes") => {
            Mistake::new("the file has too many values, with those that its aliases repeat")
                .allowed(format_args!("at most {MAX_NODES} values"))
        }
        _ if message.starts_with("duplicate mapping key") => {
            Mistake::new("the name is there twice")
        }
        _ if message.contains("did not find expected key")
            || message.contains("did not find expected '-' indicator") =>
        {
            Mistake::new("the line is indented otherwise than the lines above it")
        }
        _ if message.starts_with("mapping values are not allowed") => {
            Mistake::new("found `: ` inside of a value")
                .allowed("the indentation of the lines above, or a text with `: ` in quotes")
        }
        _ if message.starts_with("multiple YAML documents") => {
            Mistake::new("the file has a second document").allowed("one document")
        }
        _ if message.starts_with("recursive references") => {
            Mistake::new("the alias stands for a value that contains the alias")
        }
        _ => {
            // The message ends with the place.
            let message = message.rsplit_once(" at line ").map_or(message, |it| it.0);
            // The advice is for programmers.
            Mistake::new(message.split_once(", set DuplicateKeyPolicy").map_or(message, |it| it.0))
        }
    }
}

/// A value whose lists and tables have values with places.
struct Raw(Value);

fn node(raw: Spanned<Raw>) -> Node {
    Node::new(raw.value.0, span(raw.referenced))
}

fn span(location: Location) -> Range<usize> {
    let span = location.span();
    let start = span.byte_offset().unwrap_or_default() as usize;
    start..start + span.byte_len().unwrap_or_default() as usize
}

/// Returns the place of an error, which may have a line and a column only.
fn place(text: &str, location: Location) -> Range<usize> {
    if location.span().byte_offset().is_some() {
        return span(location);
    }
    let line = (location.line() as usize).saturating_sub(1);
    let start: usize = text.split_inclusive('\n').take(line).map(str::len).sum();
    // The column is behind the indentation, or at its start.
    let line = text[start..].lines().next().unwrap_or_default();
    let column = (location.column() as usize).saturating_sub(1);
    let before: usize = line.chars().take(column).map(char::len_utf8).sum();
    let indented = line.len() - line.trim_start_matches(' ').len();
    let at = start + before.max(indented);
    at..at
}

impl<'de> Deserialize<'de> for Raw {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        from.deserialize_any(RawVisitor)
    }
}

struct RawVisitor;

impl<'de> Visitor<'de> for RawVisitor {
    type Value = Raw;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a value")
    }

    fn visit_unit<E: Error>(self) -> Result<Raw, E> {
        Ok(Raw(Value::Null))
    }

    fn visit_bool<E: Error>(self, value: bool) -> Result<Raw, E> {
        Ok(Raw(Value::Bool(value)))
    }

    fn visit_i64<E: Error>(self, number: i64) -> Result<Raw, E> {
        Ok(Raw(Value::Integer(number.into())))
    }

    fn visit_u64<E: Error>(self, number: u64) -> Result<Raw, E> {
        Ok(Raw(Value::Integer(number.into())))
    }

    fn visit_f64<E: Error>(self, number: f64) -> Result<Raw, E> {
        Ok(Raw(Value::Float(number)))
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<Raw, E> {
        Ok(Raw(Value::Text(text.to_owned())))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Raw, A::Error> {
        let mut items = Vec::new();
        while let Some(item) = seq.next_element()? {
            items.push(node(item));
        }
        Ok(Raw(Value::List(items)))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Raw, A::Error> {
        let mut fields = Vec::new();
        while let Some((name, value)) = map.next_entry()? {
            fields.push((node(name), node(value)));
        }
        Ok(Raw(Value::Table(fields)))
    }
}
