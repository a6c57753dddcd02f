//! The formats.

use serde::de::DeserializeOwned;

use super::{Mistake, Node, json, mistake::may_have_secret, node::Value, toml, yaml};
use crate::config::format::Format;

/// The most [mistakes](Mistake) of a text.
pub(in crate::config) const MAX_MISTAKES: usize = 20;

/// Reads a text into a type of the program, whose fields may be [`At`](super::At).
///
/// ```
/// use plimsoll_control::{ConfigError, Format, document::{self, At}};
///
/// #[derive(Debug, serde::Deserialize)]
/// #[serde(deny_unknown_fields)]
/// struct Settings {
///     workers: At<u32>,
/// }
///
/// let text = "workers: 3\nwrokers: 4\n";
/// let mistakes = document::read::<Settings>(text, Format::Yaml).unwrap_err();
/// let error = ConfigError::new(mistakes, "settings.yaml", text);
/// assert_eq!((error.line(), error.column()), (Some(2), Some(1)));
/// assert!(error.to_string().ends_with("= allowed: `workers`\n   = help: did you mean `workers`?"));
/// ```
///
/// # Errors
///
/// Returns an error if the text does not have the format. If it has, and is not of this type, returns the
/// [mistakes](Mistake) of all its values in the order of the text, at most 20.
pub fn read<T: DeserializeOwned>(text: &str, format: Format) -> Result<T, Vec<Mistake>> {
    read_node(&parse(text, format)?)
}

/// Reads a tree into a type, like [`read`].
///
/// # Errors
///
/// Returns the mistakes of all values that are not of this type, at most 20.
pub(in crate::config) fn read_node<T: DeserializeOwned>(node: &Node) -> Result<T, Vec<Mistake>> {
    let mut mistakes = Vec::new();
    while !node.is_wrong() && mistakes.len() < MAX_MISTAKES {
        match T::deserialize(node) {
            Ok(value) if mistakes.is_empty() => return Ok(value),
            Ok(_) => break,
            // The value is wrong now, so it is left out the next time.
            Err(mistake) => mistakes.extend(Some(node.blame(mistake)).filter(|it| !it.is_known)),
        }
    }
    mistakes.sort_by_key(|mistake| mistake.span.as_ref().map(|span| span.start));
    // The aliases of a value repeat its mistakes.
    mistakes.dedup_by(|one, other| (&one.span, &one.message) == (&other.span, &other.message));
    Err(mistakes)
}

/// Parses a text.
///
/// # Errors
///
/// Returns an error if the text does not have the format.
pub(in crate::config) fn parse(text: &str, format: Format) -> Result<Node, Mistake> {
    let node = match format {
        Format::Toml => toml::parse(text),
        Format::Yaml => yaml::parse(text),
        Format::Json => json::parse(text),
    };
    // A mistake in the form may be anywhere between the start of a secret and its end.
    let node = node.map_err(|it| if may_have_secret(text) { it.secret() } else { it })?;
    let Value::Table(fields) = &node.value else { return Ok(node) };
    let version = fields.iter().find(|(it, _)| it.text() == Some("apiVersion"));
    let kind = fields.iter().find(|(it, _)| it.text() == Some("kind"));
    match (version, kind) {
        (Some(_), Some((kind, _))) => {
            let mistake = Mistake::new("the file is an object of Kubernetes");
            let allowed = "a text of its `data`, without the indentation, as a file of its own";
            Err(mistake.allowed(allowed).at(kind.span.clone()))
        }
        _ => Ok(node),
    }
}
