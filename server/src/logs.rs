//! The log on standard error.

use std::io;

use tracing_subscriber::{EnvFilter, fmt, layer::SubscriberExt, util::SubscriberInitExt};

use crate::{ServerError, settings::LogFormat};

/// Writes the events of this process to standard error, in a [format](LogFormat).
///
/// # Errors
///
/// Returns an error if the filter is not valid, or if the process has a log already.
pub fn install(format: LogFormat, filter: &str) -> Result<(), ServerError> {
    let filter = EnvFilter::builder().parse(filter)?;
    let registry = tracing_subscriber::registry().with(filter);
    match format {
        LogFormat::Text => {
            let is_terminal = io::IsTerminal::is_terminal(&io::stderr());
            registry
                .with(fmt::layer().with_writer(io::stderr).with_ansi(is_terminal))
                .try_init()?;
        }
        LogFormat::Json => {
            let layer = fmt::layer().json().flatten_event(true).with_writer(io::stderr);
            registry.with(layer).try_init()?;
        }
    }
    Ok(())
}
