//! The error of settings.

use std::fmt;

/// The error of [`Settings`](super::Settings): the field, its value, and the allowed values.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SettingsError(String);

impl SettingsError {
    pub(super) fn new(field: &str, found: impl fmt::Display, allowed: impl fmt::Display) -> Self {
        Self(format!("{field} is {found}, allowed is {allowed}"))
    }

    /// Creates an error with this text.
    pub(super) fn with_text(message: String) -> Self {
        Self(message)
    }
}

impl fmt::Display for SettingsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for SettingsError {}
