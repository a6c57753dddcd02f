//! Which configuration is in force.

use super::ConfigError;

/// Which configuration is in force, and the mistake of a newer one that is not.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConfigStatus {
    version: u64,
    error: Option<ConfigError>,
    needs_restart: bool,
}

impl ConfigStatus {
    pub(super) fn first() -> Self {
        metrics::gauge!("plimsoll_config_is_current").set(1.0);
        Self { version: 1, error: None, needs_restart: false }
    }

    /// Returns the number of configurations that were in force so far, with this one.
    #[must_use]
    pub fn version(&self) -> u64 {
        self.version
    }

    /// Returns the mistake of the file, or `None` if it is in force as it is.
    #[must_use]
    pub fn error(&self) -> Option<&ConfigError> {
        self.error.as_ref()
    }

    /// Returns whether the file in force names another store, or another resilience, than the one with which
    /// the program started. They change with a restart.
    #[must_use]
    pub fn needs_restart(&self) -> bool {
        self.needs_restart
    }

    /// Records whether the store has changed, and reports it once.
    pub(super) fn set_needs_restart(&mut self, name: &str, needs_restart: bool) {
        if needs_restart && !self.needs_restart {
            tracing::warn!(target: "plimsoll", "the store of {name} has changed: restart to use it");
        }
        self.needs_restart = needs_restart;
    }

    /// Records and reports that a file was put in force or refused.
    pub(super) fn record(&mut self, name: &str, error: Option<&ConfigError>) {
        let result = if error.is_some() { "refused" } else { "applied" };
        metrics::counter!("plimsoll_config_reloads_total", "result" => result).increment(1);
        metrics::gauge!("plimsoll_config_is_current").set(if error.is_some() { 0.0 } else { 1.0 });
        self.error = error.cloned();
        match error {
            Some(error) => {
                tracing::error!(target: "plimsoll", "the limits stay as they are: {error}");
            }
            None => {
                self.version += 1;
                let version = self.version;
                tracing::info!(target: "plimsoll", "{name} is in force, version {version}");
            }
        }
    }
}
