//! The formats.

use super::{Mistake, Node, json, toml, yaml};
use crate::config::format::Format;

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
