//! The tree of values.

use std::ops::Range;

/// A value, and its place in the text in bytes.
#[derive(Debug, PartialEq)]
pub(in crate::config) struct Node {
    pub(super) value: Value,
    pub(super) span: Range<usize>,
}

#[derive(Debug, PartialEq)]
pub(super) enum Value {
    Null,
    Bool(bool),
    Integer(i128),
    Float(f64),
    Text(String),
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
        Self { value, span }
    }
}
