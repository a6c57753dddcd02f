//! The formats of configurations.

use std::{fmt, path::Path};

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
    #[must_use]
    pub fn of_path(path: &Path) -> Option<Self> {
        match path.extension().and_then(|end| end.to_str()) {
            Some("toml") => Some(Self::Toml),
            Some("yaml" | "yml") => Some(Self::Yaml),
            Some("json") => Some(Self::Json),
            _ => None,
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
