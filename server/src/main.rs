//! The program `plimsoll-server`.

use std::process::ExitCode;

use clap::Parser;
use plimsoll_server::{
    DEFAULT_CONFIG, Server, ServerError, check, install_logs, lint_envoy,
    settings::{Flags, Settings},
};

fn main() -> ExitCode {
    match run(Flags::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            let error = error.to_string();
            eprintln!("{}{error}", if error.starts_with("error: ") { "" } else { "error: " });
            ExitCode::FAILURE
        }
    }
}

fn run(flags: Flags) -> Result<(), ServerError> {
    let (is_check, path) = (flags.check, flags.lint_envoy.clone());
    if flags.print_default_config {
        print!("{DEFAULT_CONFIG}");
        return Ok(());
    }
    let settings = flags.settings()?;
    if let Some(path) = path {
        println!("{}", lint_envoy(&path, settings.envoy)?);
    } else if is_check {
        println!("{}", check(&settings)?);
    } else {
        serve(settings)?;
    }
    Ok(())
}

fn serve(settings: Settings) -> Result<(), ServerError> {
    install_logs(settings.log_format, &settings.log)?;
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    runtime.block_on(async { Server::new(settings).await?.run().await })
}
