//! The command line.

use std::{env, path::PathBuf};

use clap::{Arg, Parser};

use super::{Settings, SettingsError, options::Options, secrets::SECRETS};

/// Rate limits as a service: an HTTP API, gRPC, and an admin page.
#[derive(Parser)]
#[command(name = "plimsoll-server", version, max_term_width = 100, mut_args = without_empty)]
pub struct Flags {
    /// Settings file, in TOML
    #[arg(long, env = "PLIMSOLL_SETTINGS", value_name = "FILE")]
    settings: Option<PathBuf>,
    /// Read the settings and the limits, report mistakes, and exit
    #[arg(long)]
    pub check: bool,
    /// Print what differs from envoyproxy/ratelimit under a configuration of it, and exit
    #[arg(long, value_name = "PATH")]
    pub lint_envoy: Option<PathBuf>,
    /// Print the limits that are in force without `--config`, and exit
    #[arg(long)]
    pub print_default_config: bool,
    #[command(flatten)]
    options: Options,
}

impl Flags {
    /// Reads the settings file, and returns the settings of flags, environment and file.
    ///
    /// # Errors
    ///
    /// Returns an error if the file cannot be read, a value is not allowed, or a variable of envoyproxy/ratelimit
    /// cannot be followed.
    pub fn settings(self) -> Result<Settings, SettingsError> {
        let mut options = self.options;
        let variable = |name: &str| env::var(name).ok().filter(|value| !value.is_empty());
        let [token, admin_token, receipt_secret] = SECRETS.map(variable);
        (options.token, options.admin_token) = (token, admin_token);
        options.receipt_secret = receipt_secret;
        match self.lint_envoy {
            // The limits are those of the flag.
            Some(_) => Settings::new(options, self.settings.as_deref(), &|_| None),
            None => Settings::new(options, self.settings.as_deref(), &variable),
        }
    }
}

/// Returns the flag without its environment variable if that is empty: a container file often passes variables on
/// that are not set.
fn without_empty(flag: Arg) -> Arg {
    let is_empty = flag.get_env().and_then(env::var_os).is_some_and(|value| value.is_empty());
    if is_empty { flag.env(None::<&'static str>) } else { flag }
}
