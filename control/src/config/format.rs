//! The formats of configurations.

use std::{fmt, path::Path};

use super::document::Mistake;

/// A format of a configuration.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Format {
    /// TOML 1.1: files that end with `.toml`.
    Toml,
    /// YAML 1.2: files that end with `.yaml` or `.yml`.
    Yaml,
    /// JSON: files that end with `.json`.
    Json,
}

impl Format {
    /// Returns the format that the end of the name of a file says.
    pub(super) fn of_path(path: &Path) -> Result<Self, Mistake> {
        match path.extension().and_then(|end| end.to_str()) {
            Some("toml") => Ok(Self::Toml),
            Some("yaml" | "yml") => Ok(Self::Yaml),
            Some("json") => Ok(Self::Json),
            _ => Err(Mistake::new("the name of the file does not say its format")
                .allowed("a name that ends with .toml, .yaml, .yml or .json")),
        }
    }
}

impl fmt::Display for Format {
    /// Writes the end of the names of files, such as `toml`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Toml => f.write_str("toml"),
            Self::Yaml => f.write_str("yaml"),
            Self::Json => f.write_str("json"),
        }
    }
}
