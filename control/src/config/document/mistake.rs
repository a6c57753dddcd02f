//! A [mistake](Mistake) in a configuration: what was found, what is allowed, and where.

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
    pub(in crate::config) allowed: Option<Box<str>>,
    /// The nearest spelling that is allowed.
    pub(in crate::config) nearest: Option<Box<str>>,
    /// The path of the value, such as `rules[0].key`.
    pub(in crate::config) path: Box<str>,
    /// True if the [mistake](Mistake) is in a table, or in a text, that may have a secret.
    pub(in crate::config) is_secret: bool,
    /// The name of a field that is missing.
    pub(super) missing: Option<&'static str>,
    /// True if the mistake has a place: a [`Node`](super::Node) that is wrong.
    pub(super) is_blamed: bool,
    /// True if the mistake follows from another one.
    pub(super) is_known: bool,
}

/// Words in the names of fields whose values are secret, or have a password.
const SECRET_WORDS: [&str; 7] = ["url", "cluster", "sentinels", "primary", "pass", "pwd", "auth"];

/// Parts of such words, as in `redisPassword` and `tokens`.
const SECRET_PARTS: [&str; 5] = ["password", "passwd", "secret", "token", "credential"];

/// Returns whether a text may have a secret: it has a word of the name of a secret field, or a URL.
pub(in crate::config) fn may_have_secret(text: &str) -> bool {
    // The algorithm is no secret.
    let text = text.to_lowercase().replace("token-bucket", "").replace("token_bucket", "");
    let mut words = text.split(|it: char| !it.is_alphanumeric());
    text.contains("://")
        || text.contains("overrides-redis")
        || SECRET_PARTS.iter().any(|part| text.contains(part))
        || words.any(|word| SECRET_WORDS.contains(&word))
}

impl Mistake {
    /// Creates a mistake. If the message ends with `, allowed is ..`, or with the question of an error of
    /// the library, `(did you mean ".."?)`, these become parts of their own.
    pub fn new(message: impl fmt::Display) -> Self {
        let text = message.to_string();
        // The errors of the library name what is allowed, and the nearest spelling, behind what was found.
        let (text, allowed) = match text.rsplit_once(", allowed is ") {
            Some((message, allowed)) => (message.to_owned(), Some(allowed.into())),
            None => (text, None),
        };
        let question = text.rsplit_once(" (did you mean \"");
        let nearest = question.and_then(|(message, nearest)| {
            Some((message.to_owned(), Some(nearest.strip_suffix("\"?)")?.into())))
        });
        let (message, nearest) = nearest.unwrap_or((text, None));
        Self { message, allowed, nearest, ..Self::default() }
    }

    pub(in crate::config) fn too_deep() -> Self {
        Self::new("tables and lists are nested too deeply").allowed("at most 32 levels")
    }

    /// Sets the place.
    #[must_use]
    pub fn at(self, span: Range<usize>) -> Self {
        Self { span: Some(span), ..self }
    }

    /// Returns the place in the text, in bytes, if it is known.
    #[must_use]
    pub fn span(&self) -> Option<Range<usize>> {
        self.span.clone()
    }

    /// Adds the name of a field, or the index in a list, in which the value is.
    pub(super) fn inside(self, name: &str) -> Self {
        let dot = if self.path.is_empty() || self.path.starts_with('[') { "" } else { "." };
        Self { path: format!("{name}{dot}{}", self.path).into(), ..self }
    }

    /// Sets that a secret may be near, so that neither the value nor the line is written.
    pub(in crate::config) fn secret(self) -> Self {
        Self { is_secret: true, ..self }
    }

    /// Returns the mistake in a table with these names, and that may have these fields.
    pub(super) fn of_table<'n>(
        self,
        fields: &[&str],
        mut names: impl Iterator<Item = &'n str>,
    ) -> Self {
        let may_be_secret = fields.iter().any(|field| may_have_secret(field));
        let is_secret = self.is_secret || may_be_secret || names.any(may_have_secret);
        let is_of_rust = self.allowed.as_ref().is_some_and(|it| it.starts_with("struct "));
        let allowed =
            is_of_rust.then(|| format!("a table with the fields {}", listed(fields)).into());
        Self { allowed: allowed.or(self.allowed), is_secret, ..self }
    }

    /// Returns the mistake of a value for which there are these names.
    pub(super) fn of_names(self, names: &[&str]) -> Self {
        let is_of_rust = self.allowed.as_ref().is_some_and(|it| it.starts_with("enum "));
        Self { allowed: is_of_rust.then(|| listed(names).into()).or(self.allowed), ..self }
    }

    /// Returns the mistake in a line: what was found, the path of the value, what is allowed, and the nearest spelling.
    #[must_use]
    pub fn in_a_line(&self) -> String {
        let (message, nearest) = self.shown();
        let has_path = !self.is_secret && !self.path.is_empty();
        let path = if has_path { format!("`{}`: ", self.path) } else { String::new() };
        let allowed = self.allowed.as_ref().map(|it| format!(", allowed is {it}"));
        let nearest = nearest.map(|it| format!(" (did you mean `{it}`?)"));
        [path, message, allowed.unwrap_or_default(), nearest.unwrap_or_default()].concat()
    }

    /// Returns the message and the nearest spelling. If a secret may be near, they do not name the value.
    pub(in crate::config) fn shown(&self) -> (String, Option<&str>) {
        let Self { message, path, nearest, .. } = self;
        if !self.is_secret {
            return (message.clone(), nearest.as_deref());
        }
        let message = match message.split_once('`') {
            Some((message, _)) if message.starts_with("unknown ") => message.trim_end(),
            _ if message.starts_with("found ") || message.contains('"') => "found another value",
            _ => message,
        };
        let place = if path.is_empty() { String::new() } else { format!("`{path}`: ") };
        (format!("{place}{message}"), nearest.as_deref())
    }

    /// Sets what is allowed.
    #[must_use]
    pub fn allowed(self, allowed: impl fmt::Display) -> Self {
        Self { allowed: Some(allowed.to_string().into()), ..self }
    }

    /// Returns the mistake of a name that is not one of the allowed names.
    pub fn unknown<'a>(what: &str, found: &str, names: impl IntoIterator<Item = &'a str>) -> Self {
        let names: Vec<_> = names.into_iter().collect();
        let allowed = listed(&names);
        let nearest = nearest(found, names).map(Into::into);
        Self {
            nearest,
            ..Self::new(format_args!("unknown {what} `{}`", found.escape_debug())).allowed(allowed)
        }
    }
}

fn listed(names: &[&str]) -> String {
    let list: Vec<_> = names.iter().map(|name| format!("`{name}`")).collect();
    if list.is_empty() { "none".to_owned() } else { list.join(", ") }
}

/// Returns words for people in place of serde's words for an expected value, which name types of Rust.
fn in_words(expected: &str) -> String {
    match expected {
        "u8" => whole(0, u8::MAX),
        "u16" => whole(0, u16::MAX),
        "u32" => whole(0, u32::MAX),
        "a nonzero u32" => whole(1, u32::MAX),
        "u64" | "usize" => whole(0, u64::MAX),
        "i32" => whole(i32::MIN, i32::MAX),
        "i64" => whole(i64::MIN, i64::MAX),
        "f64" => "a number".to_owned(),
        "a string" | "path string" => "a text".to_owned(),
        "a boolean" => "true or false".to_owned(),
        "a sequence" => "a list".to_owned(),
        "a map" => "a table".to_owned(),
        "field identifier" | "variant identifier" => "a name".to_owned(),
        other => other.to_owned(),
    }
}

fn whole(min: impl fmt::Display, max: impl fmt::Display) -> String {
    format!("a whole number from {min} to {max}")
}

/// Returns the name that is spelled nearly like `found`, if there is one.
///
/// ```
/// use plimsoll_control::document::nearest;
///
/// assert_eq!(nearest("polciy", ["policy", "key"]), Some("policy"));
/// ```
pub fn nearest<'a>(found: &str, names: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    // The distance of long texts takes too long to compute, and says nothing.
    if found.len() > 64 {
        return None;
    }
    let distances = names
        .into_iter()
        .map(|name| (strsim::damerau_levenshtein(&plain(found), &plain(name)), name));
    let (distance, best) = distances.min_by_key(|(distance, _)| *distance)?;
    (distance <= 1.max(found.chars().count() / 3)).then_some(best)
}

fn plain(name: &str) -> String {
    name.to_lowercase().replace(['-', ' '], "_")
}

impl fmt::Display for Mistake {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for Mistake {}

/// The mistakes of a text that has one, for [`ConfigError::new`](crate::ConfigError::new).
impl From<Mistake> for Vec<Mistake> {
    fn from(mistake: Mistake) -> Self {
        vec![mistake]
    }
}

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
            // The words of serde for numbers that no type of it can have.
            Unexpected::Other(other) => match other.split('`').nth(1) {
                Some(number) => format!("found the number {number}"),
                None => format!("found {other}"),
            },
            other => format!("found {other}"),
        };
        Self::new(found).allowed(in_words(&allowed.to_string()))
    }

    fn invalid_length(length: usize, allowed: &dyn Expected) -> Self {
        Self::new(format_args!("found {length} values")).allowed(in_words(&allowed.to_string()))
    }

    fn duplicate_field(field: &'static str) -> Self {
        Self::new(format_args!("the field `{field}` is there twice"))
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
        let mistake = Self::new(format_args!("the field `{field}` is missing"));
        Self { missing: Some(field), ..mistake }
    }
}
