//! A mistake in a configuration: what was found, what is allowed, and where.

use std::{fmt, ops::Range};

use serde::de::{Error, Expected, Unexpected};

/// A mistake in a configuration: what was found, where, what is allowed, and the nearest spelling.
/// [`ConfigError::new`](crate::ConfigError::new) writes it beside the line of the text.
#[derive(Debug, Clone, Default)]
pub struct Mistake {
    /// The value or text that was found, in one line.
    pub(in crate::config) message: String,
    /// The place in the text, in bytes.
    pub(in crate::config) span: Option<Range<usize>>,
    pub(in crate::config) allowed: Option<String>,
    /// The nearest spelling that is allowed.
    pub(in crate::config) nearest: Option<String>,
}

impl Mistake {
    /// Creates a mistake. If the message ends with `, allowed is ..`, or with the question of an error of
    /// the library, `(did you mean ".."?)`, these become parts of their own.
    pub fn new(message: impl fmt::Display) -> Self {
        let text = message.to_string();
        // The errors of the library name what is allowed, and the nearest spelling, behind what was found.
        let (text, allowed) = match text.rsplit_once(", allowed is ") {
            Some((message, allowed)) => (message.to_owned(), Some(allowed.to_owned())),
            None => (text, None),
        };
        let question = text.rsplit_once(" (did you mean \"");
        let nearest = question.and_then(|(message, nearest)| {
            Some((message.to_owned(), Some(nearest.strip_suffix("\"?)")?.to_owned())))
        });
        let (message, nearest) = nearest.unwrap_or((text, None));
        // A text that is right by its spelling has another fault.
        let nearest = nearest.filter(|nearest| !message.contains(&format!("{nearest:?}")));
        Self { message, span: None, allowed, nearest }
    }

    pub(in crate::config) fn too_deep() -> Self {
        Self::new("tables and lists are nested too deeply").allowed("at most 32 levels")
    }

    /// Sets the place.
    #[must_use]
    pub fn at(self, span: Range<usize>) -> Self {
        Self { span: Some(span), ..self }
    }

    /// Sets the place if it is not known.
    pub(in crate::config) fn or_at(self, span: &Range<usize>) -> Self {
        Self { span: self.span.or_else(|| Some(span.clone())), ..self }
    }

    /// Sets what is allowed.
    #[must_use]
    pub fn allowed(self, allowed: impl fmt::Display) -> Self {
        Self { allowed: Some(allowed.to_string()), ..self }
    }

    /// Returns the mistake of a name that is not one of the allowed names.
    pub fn unknown<'a>(what: &str, found: &str, names: impl IntoIterator<Item = &'a str>) -> Self {
        let names: Vec<_> = names.into_iter().collect();
        let list: Vec<_> = names.iter().map(|name| format!("`{name}`")).collect();
        let allowed = if list.is_empty() { "none".to_owned() } else { list.join(", ") };
        let nearest = nearest(found, names).map(str::to_owned);
        Self {
            nearest,
            ..Self::new(format_args!("unknown {what} `{}`", found.escape_debug())).allowed(allowed)
        }
    }
}

/// Returns the name that is spelled nearly like `found`.
pub(in crate::config) fn nearest<'a>(
    found: &str,
    names: impl IntoIterator<Item = &'a str>,
) -> Option<&'a str> {
    // The distance of long texts takes too long to compute, and says nothing.
    if found.len() > 64 {
        return None;
    }
    let plain = |text: &str| text.to_lowercase().replace(['-', ' '], "_");
    let distance = |name: &&str| strsim::damerau_levenshtein(&plain(found), &plain(name));
    let best = names.into_iter().min_by_key(distance)?;
    (distance(&best) <= 1.max(found.chars().count() / 3)).then_some(best)
}

impl fmt::Display for Mistake {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for Mistake {}

impl Error for Mistake {
    fn custom<T: fmt::Display>(message: T) -> Self {
        Self::new(message)
    }

    fn invalid_type(found: Unexpected<'_>, allowed: &dyn Expected) -> Self {
        let found = match found {
            Unexpected::Str(text) => format!("found the text {text:?}"),
            Unexpected::Unsigned(number) => format!("found the number {number}"),
            Unexpected::Signed(number) => format!("found the number {number}"),
            // With a point, which a whole number has not.
            Unexpected::Float(number) => format!("found the number {number:?}"),
            Unexpected::Bool(value) => format!("found {value}"),
            Unexpected::Map => "found a table".to_owned(),
            Unexpected::Seq => "found a list".to_owned(),
            Unexpected::Unit => "found no value".to_owned(),
            other => format!("found {other}"),
        };
        // These are the words of serde, which are those of Rust.
        let allowed = allowed.to_string();
        Self::new(found).allowed(match &*allowed {
            "a string" => "a text",
            "a boolean" => "true or false",
            "a sequence" => "a list",
            "a map" => "a table",
            "u32" | "u64" | "usize" => "a whole number",
            "a nonzero u32" => "a whole number from 1 on",
            other => other,
        })
    }

    fn invalid_value(found: Unexpected<'_>, allowed: &dyn Expected) -> Self {
        Self::invalid_type(found, allowed)
    }

    fn unknown_field(field: &str, allowed: &'static [&'static str]) -> Self {
        Self::unknown("field", field, allowed.iter().copied())
    }

    fn unknown_variant(variant: &str, allowed: &'static [&'static str]) -> Self {
        Self::unknown("value", variant, allowed.iter().copied())
    }

    fn missing_field(field: &'static str) -> Self {
        Self::new(format_args!("the field `{field}` is missing"))
    }
}
