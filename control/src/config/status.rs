//! The state of a configuration.

use super::ConfigError;

/// The state of a [`Config`](super::Config): the configuration that is in force, and the mistake of a
/// newer one that is not.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConfigStatus {
    version: u64,
    error: Option<ConfigError>,
    needs_restart: bool,
}

impl ConfigStatus {
    pub(super) fn first(name: &str) -> Self {
        set_current(name, true);
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

    /// Returns whether the file in force names another store, or another resilience, than the program started
    /// with. They change with a restart.
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
        let counter = "plimsoll_config_reloads_total";
        metrics::counter!(counter, "file" => name.to_owned(), "result" => result).increment(1);
        set_current(name, error.is_none());
        self.error = error.cloned();
        match error {
            Some(error) => {
                tracing::error!(target: "plimsoll", "the limits of {name} stay as they are\n{error}");
            }
            None => {
                self.version += 1;
                let version = self.version;
                tracing::info!(target: "plimsoll", "{name} is in force, version {version}");
            }
        }
    }
}

/// Sets the metric that says whether the file is in force as it is.
fn set_current(name: &str, is_current: bool) {
    let gauge = metrics::gauge!("plimsoll_config_is_current", "file" => name.to_owned());
    gauge.set(if is_current { 1.0 } else { 0.0 });
}
