//! The tree of values.

use std::{cell::Cell, ops::Range};

use super::{Mistake, mistake::nearest};

/// A value, and its place in the text in bytes.
#[derive(Debug, PartialEq)]
pub(in crate::config) struct Node {
    pub(super) value: Value,
    pub(super) span: Range<usize>,
    /// True if a [mistake](Mistake) was found in it. Its table or list is then read without it, which shows the
    /// mistakes of the others.
    is_wrong: Cell<bool>,
}

#[derive(Debug, PartialEq)]
pub(super) enum Value {
    Null,
    Bool(bool),
    Integer(i128),
    Float(f64),
    Text(String),
    /// A word of YAML 1.1 without quotes, such as `yes`: a truth value where one is needed, and a text elsewhere.
    Word(String, bool),
    /// A number that begins with 0, such as `010`. It is 8 in YAML 1.1, and 10 in YAML 1.2.
    Padded(f64),
    List(Vec<Node>),
    /// The fields in the order of the text, and their names.
    Table(Vec<(Node, Node)>),
    /// A value that only one of the formats has, such as a date.
    Other(&'static str),
}

impl Node {
    /// The maximum depth of lists and tables in each other.
    pub(super) const MAX_DEPTH: usize = 32;

    /// Returns whether the document has no field, such as one of comments alone.
    pub(in crate::config) fn is_empty(&self) -> bool {
        match &self.value {
            Value::Null => true,
            Value::Table(fields) => fields.is_empty(),
            _ => false,
        }
    }

    pub(super) fn new(value: Value, span: Range<usize>) -> Self {
        Self { value, span, is_wrong: Cell::new(false) }
    }

    /// Returns whether a [mistake](Mistake) was found in this value, and not in another value inside of it.
    pub(super) fn is_wrong(&self) -> bool {
        self.is_wrong.get()
    }

    /// Returns a mistake with this value as its place, unless a value inside of this one is its place.
    pub(super) fn blame(&self, mut mistake: Mistake) -> Mistake {
        if mistake.is_blamed {
            return mistake;
        }
        self.is_wrong.set(true);
        mistake.is_blamed = true;
        mistake.span.get_or_insert_with(|| self.span.clone());
        if let (Some(missing), Value::Table(fields)) = (mistake.missing, &self.value) {
            // The field is there, but its name or its value is wrong, which was found before.
            mistake.is_known = fields.iter().any(|(name, value)| {
                let is_wrong = name.is_wrong() || value.is_wrong();
                is_wrong && name.text().is_some_and(|it| nearest(it, [missing]).is_some())
            });
        }
        mistake
    }

    /// Returns the names of the fields, if the value is a table.
    pub(super) fn names(&self) -> impl Iterator<Item = &str> {
        let fields = if let Value::Table(fields) = &self.value { &fields[..] } else { &[] };
        fields.iter().filter_map(|(name, _)| name.text())
    }

    /// Returns the text, if the value is one.
    pub(super) fn text(&self) -> Option<&str> {
        match &self.value {
            Value::Text(text) | Value::Word(text, _) => Some(text),
            _ => None,
        }
    }
}
