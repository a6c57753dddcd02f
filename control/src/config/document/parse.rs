//! The formats.

use serde::de::DeserializeOwned;

use super::{Mistake, Node, json, toml, yaml};
use crate::config::format::Format;

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
/// let mistake = document::read::<Settings>(text, Format::Yaml).unwrap_err();
/// let error = ConfigError::new(mistake, "settings.yaml", text);
/// assert_eq!((error.line(), error.column()), (Some(2), Some(1)));
/// assert!(error.to_string().ends_with("= allowed: `workers`\n   = help: did you mean `workers`?"));
/// ```
///
/// # Errors
///
/// Returns an error if the text does not have the format, or is not of this type.
pub fn read<T: DeserializeOwned>(text: &str, format: Format) -> Result<T, Mistake> {
    T::deserialize(&parse(text, format)?)
}

/// Parses a text.
///
/// # Errors
///
/// Returns an error if the text does not have the format.
pub(in crate::config) fn parse(text: &str, format: Format) -> Result<Node, Mistake> {
    match format {
        Format::Toml => toml::parse(text),
        Format::Yaml => yaml::parse(text),
        Format::Json => json::parse(text),
    }
}
