//! The names under which requests are counted in metrics, and limits are named in headers.

use std::{
    fmt,
    hash::{DefaultHasher, Hash, Hasher},
};

/// The longest part of a text that is shown in a label, in bytes.
const MAX_LABEL_BYTES: usize = 128;

/// The longest name of a limit in a header, in characters.
const MAX_NAME_CHARS: usize = 64;

/// The domain and the descriptors of a limit, under which its requests are counted.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub(super) struct MetricKey {
    domain: String,
    parts: Vec<String>,
}

impl MetricKey {
    pub(super) fn new(domain: &str) -> Self {
        Self { domain: domain.to_owned(), parts: Vec::new() }
    }

    /// Adds a descriptor: its key, or its key and value.
    pub(super) fn push(&mut self, part: impl Into<String>) {
        self.parts.push(part.into());
    }

    /// Returns the values of the labels `domain`, `key1` and `key2`. Long texts are cut.
    pub(super) fn labels(&self) -> [String; 3] {
        let part = |index: usize| self.parts.get(index).map(|it| label(it)).unwrap_or_default();
        [label(&self.domain), part(0), part(1)]
    }

    /// Returns the name of a limit in a header: its own, or the path of its descriptors.
    pub(super) fn header_name(&self, own: &str) -> String {
        let path = self.parts.join(".");
        let name = if own.is_empty() { &*path } else { own };
        // A character that is not allowed in a string of a structured field makes clients drop the whole field.
        let plain = |it: char| match it {
            '"' | '\\' => '_',
            ' '..='~' => it,
            _ => '_',
        };
        name.chars().take(MAX_NAME_CHARS).map(plain).collect()
    }
}

impl fmt::Display for MetricKey {
    /// Writes the parts with dots between them.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.domain)?;
        self.parts.iter().try_for_each(|part| write!(f, ".{part}"))
    }
}

/// Returns the label of a text. A text of more than [`MAX_LABEL_BYTES`] is cut, and has a digest of the whole
/// behind it, so that different values have different labels. Clients send values, and each label is kept.
fn label(text: &str) -> String {
    if text.len() <= MAX_LABEL_BYTES {
        return sanitized(text);
    }
    let mut hasher = DefaultHasher::new();
    text.hash(&mut hasher);
    let end = (0..=MAX_LABEL_BYTES).rev().find(|end| text.is_char_boundary(*end)).unwrap_or(0);
    format!("{}~{:016x}", sanitized(&text[..end]), hasher.finish())
}

/// Returns a text without the characters that separate the parts of a statsd name, as envoyproxy/ratelimit does.
fn sanitized(text: &str) -> String {
    text.replace([':', '|'], "_")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn separators_of_statsd_become_underscores() {
        assert_eq!(sanitized("a:b|c"), "a_b_c");
    }

    #[test]
    fn long_labels_are_cut_between_characters() {
        let [short, long] = [128, 129].map(|bytes| "a".repeat(bytes));
        assert_eq!(label(&short), short);
        assert_eq!(label(&long).len(), 128 + 17);
        assert_eq!(label(&long), label(&long.clone()));
        let [one, other] = ["1", "2"].map(|end| label(&format!("{}{end}", "a\u{20ac}".repeat(50))));
        assert_ne!(one, other);
        assert!(one.starts_with(&"a\u{20ac}".repeat(32)) && one.is_char_boundary(128), "{one}");
        assert!(label(&"\u{20ac}".repeat(50)).starts_with(&format!("{}~", "\u{20ac}".repeat(42))));
    }

    #[test]
    fn the_name_in_a_header_is_that_of_the_limit_or_the_path() {
        let mut key = MetricKey::new("rl");
        ["foo", "\"b\\a\u{e9}r"].into_iter().for_each(|part| key.push(part));
        assert_eq!(key.header_name(""), "foo._b_a_r");
        assert_eq!(key.header_name("own name"), "own name");
        assert_eq!(key.header_name(&"n".repeat(100)), "n".repeat(64));
    }

    #[test]
    fn the_first_two_descriptors_are_labels() {
        let mut key = MetricKey::new("rl");
        ["foo", "bar_x", "baz"].into_iter().for_each(|part| key.push(part));
        assert_eq!(key.labels(), ["rl", "foo", "bar_x"]);
        assert_eq!(key.to_string(), "rl.foo.bar_x.baz");
    }
}
