//! The error of a configuration.

use std::{error::Error, fmt};

use plimsoll_control::ConfigError;

/// The error of an [`EnvoyConfig`](super::EnvoyConfig): the [mistakes](ConfigError) of its files, each with its place.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EnvoyConfigError(Vec<ConfigError>);

impl EnvoyConfigError {
    pub(super) fn new(errors: Vec<ConfigError>) -> Self {
        Self(errors)
    }

    /// Returns the mistakes.
    #[must_use]
    pub fn errors(&self) -> &[ConfigError] {
        &self.0
    }
}

impl fmt::Display for EnvoyConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, error) in self.0.iter().enumerate() {
            let between = if index > 0 { "\n\n" } else { "" };
            write!(f, "{between}{error}")?;
        }
        Ok(())
    }
}

impl Error for EnvoyConfigError {}
