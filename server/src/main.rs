//! The program `plimsoll-server`.

use std::process::ExitCode;

use clap::Parser;
use plimsoll_server::{
    DEFAULT_CONFIG, Server, ServerError, check, install_logs, lint_envoy,
    settings::{Action, Flags, Settings},
};

fn main() -> ExitCode {
    let flags = Flags::parse();
    let action = flags.action();
    let done = match action {
        Action::PrintDefaultConfig => {
            print!("{DEFAULT_CONFIG}");
            Ok(())
        }
        Action::Check => flags.settings().map_err(Into::into).and_then(|settings| {
            println!("{}", check(&settings)?);
            Ok(())
        }),
        Action::LintEnvoy(path) => flags.settings().map_err(Into::into).and_then(|settings| {
            lint_envoy(&path, settings.envoy).map(|report| println!("{report}"))
        }),
        Action::Serve => flags.settings().map_err(Into::into).and_then(serve),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            let error = error.to_string();
            eprintln!("{}{error}", if error.starts_with("error: ") { "" } else { "error: " });
            ExitCode::FAILURE
        }
    }
}

fn serve(settings: Settings) -> Result<(), ServerError> {
    install_logs(settings.log_format, &settings.log)?;
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    runtime.block_on(async { Server::new(settings).await?.run().await })
}
