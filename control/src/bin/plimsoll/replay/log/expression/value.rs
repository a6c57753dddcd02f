//! The values of a request that expressions name.

use std::{borrow::Cow, error::Error, fmt, str::FromStr};

use super::super::Entry;

/// The error of a text that is no expression. It says what is wrong, where, and what is allowed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ExpressionError(pub(super) String);

/// A value of a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Value {
    Ip,
    Method,
    Host,
    Path,
    Target,
    Status,
    Bytes,
    Header(String),
    /// A field of the log, or without it, the value of this name, which the log calls otherwise.
    Field(String),
}

/// The values without a name of their own.
const PLAIN: &[(&str, Value)] = &[
    ("ip", Value::Ip),
    ("method", Value::Method),
    ("host", Value::Host),
    ("path", Value::Path),
    ("target", Value::Target),
    ("status", Value::Status),
    ("bytes", Value::Bytes),
];

impl Value {
    /// The names of all values, for messages.
    pub(super) const NAMES: &str =
        "ip, method, host, path, target, status, bytes, header:NAME or field:NAME";

    /// Returns the value as a text.
    pub(super) fn text<'a>(&self, entry: &'a Entry) -> Option<Cow<'a, str>> {
        match self {
            Self::Ip => entry.ip().map(|it| it.to_string().into()),
            Self::Method => entry.method().map(Into::into),
            Self::Host => entry.host().map(Into::into),
            Self::Path => entry.path().map(Into::into),
            Self::Target => entry.target().map(Into::into),
            Self::Status | Self::Bytes => self.number(entry).map(|it| it.to_string().into()),
            Self::Header(name) => entry.header(name).map(Into::into),
            Self::Field(name) => match entry.field(name) {
                Some(text) => Some(text.into()),
                None => plain(name)?.text(entry),
            },
        }
    }

    /// Returns the value as a whole number.
    pub(super) fn number(&self, entry: &Entry) -> Option<u64> {
        match self {
            Self::Status => entry.status().map(u64::from),
            Self::Bytes => entry.bytes(),
            Self::Header(name) => entry.header(name)?.parse().ok(),
            Self::Field(name) => match entry.field(name) {
                Some(text) => text.parse().ok(),
                None => plain(name)?.number(entry),
            },
            Self::Ip | Self::Method | Self::Host | Self::Path | Self::Target => None,
        }
    }

    /// Returns whether the value may be a number.
    pub(super) fn is_number(&self) -> bool {
        matches!(self, Self::Status | Self::Bytes | Self::Header(_) | Self::Field(_))
    }
}

impl FromStr for Value {
    type Err = ExpressionError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let named = match text.split_once(':') {
            Some((_, "")) => None,
            Some(("header", name)) => Some(Self::Header(name.to_owned())),
            Some(("field", name)) => Some(Self::Field(name.to_owned())),
            _ => None,
        };
        plain(text).cloned().or(named).ok_or_else(|| {
            ExpressionError(format!(
                "{text:?} is no value of a request; allowed is {}",
                Self::NAMES
            ))
        })
    }
}

/// Returns the value of a name without a colon.
fn plain(name: &str) -> Option<&'static Value> {
    PLAIN.iter().find(|(plain, _)| *plain == name).map(|(_, value)| value)
}

impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Header(name) => write!(f, "header:{name}"),
            Self::Field(name) => write!(f, "field:{name}"),
            plain => {
                let name = PLAIN.iter().find(|(_, value)| value == plain);
                f.write_str(name.map_or("", |(name, _)| name))
            }
        }
    }
}

impl fmt::Display for ExpressionError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl Error for ExpressionError {}
