//! The command line.

use std::{env, ffi::OsString, path::PathBuf};

use clap::{Arg, ArgMatches, CommandFactory, FromArgMatches, Parser};

use super::{
    Settings, SettingsError,
    options::Options,
    secrets::{SECRETS, variable},
    settings::read,
};

/// The command line, and the environment variables that stand for flags. They make the [`Settings`].
pub struct Flags {
    /// True if the settings and the limits are only [checked](crate::check()).
    pub is_check: bool,
    /// True if the [default limits](crate::DEFAULT_CONFIG) are only printed.
    pub prints_default_config: bool,
    settings: Option<PathBuf>,
    matches: ArgMatches,
}

/// Rate limits as a service: an HTTP API, gRPC, and an admin page.
#[derive(Parser)]
#[command(name = "plimsoll-server", version, max_term_width = 100, mut_args = without_empty)]
struct CommandLine {
    /// Settings file, in TOML
    #[arg(long, env = "PLIMSOLL_SETTINGS", value_name = "FILE")]
    settings: Option<PathBuf>,
    /// Read the settings and the limits, report mistakes, and exit
    #[arg(long)]
    check: bool,
    /// Print the limits that are in force without `--config`, and exit
    #[arg(long)]
    print_default_config: bool,
    #[command(flatten)]
    _options: Options,
}

impl Flags {
    /// Reads a command line. The first argument is the name of the program.
    ///
    /// # Errors
    ///
    /// Returns an error if a flag or a value is not known, and for `--help` and `--version`.
    pub fn parse_from(
        arguments: impl IntoIterator<Item = impl Into<OsString> + Clone>,
    ) -> Result<Self, clap::Error> {
        let matches = CommandLine::command().try_get_matches_from(arguments)?;
        let CommandLine { settings, check, print_default_config, .. } =
            CommandLine::from_arg_matches(&matches)?;
        Ok(Self { is_check: check, prints_default_config: print_default_config, settings, matches })
    }

    /// Reads the settings file, and returns the [settings](Settings) of flags, environment and file.
    ///
    /// # Errors
    ///
    /// Returns an error if the file cannot be read, a value is not allowed, or a variable of envoyproxy/ratelimit
    /// cannot be followed.
    pub fn settings(&self) -> Result<Settings, SettingsError> {
        let mut options = match &self.settings {
            Some(path) => read(path)?,
            None => Options::default(),
        };
        if ["redis", "redis_cluster", "redis_sentinels"]
            .iter()
            .any(|it| self.matches.contains_id(it))
        {
            // Another kind of servers replaces the servers of the file.
            options.redis = None;
            options.redis_cluster = None;
            options.redis_sentinels = None;
            options.redis_primary = None;
        }
        let updated = options.update_from_arg_matches(&self.matches);
        updated.map_err(|error| SettingsError::with_text(error.to_string()))?;
        let secrets = [&mut options.token, &mut options.admin_token, &mut options.receipt_secret];
        for (name, secret) in SECRETS.into_iter().zip(secrets) {
            *secret = variable(name).or_else(|| secret.take());
        }
        Settings::new(options)
    }
}

/// Returns the flag without its environment variable if that is empty: a container file often passes variables on
/// that are not set.
fn without_empty(flag: Arg) -> Arg {
    let is_empty = flag.get_env().and_then(env::var_os).is_some_and(|value| value.is_empty());
    if is_empty { flag.env(None::<&'static str>) } else { flag }
}
