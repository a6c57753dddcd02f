//! The program `plimsoll-server`.

use std::{env, process::ExitCode};

use plimsoll_server::{
    DEFAULT_CONFIG, Server, ServerError, check, install_logs,
    settings::{Flags, Settings},
};

fn main() -> ExitCode {
    let flags = Flags::parse_from(env::args_os()).unwrap_or_else(|error| error.exit());
    match run(&flags) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            let error = error.to_string();
            eprintln!("{}{error}", if error.starts_with("error: ") { "" } else { "error: " });
            ExitCode::FAILURE
        }
    }
}

fn run(flags: &Flags) -> Result<(), ServerError> {
    if flags.prints_default_config {
        print!("{DEFAULT_CONFIG}");
        return Ok(());
    }
    let settings = flags.settings()?;
    if flags.is_check {
        println!("{}", check(&settings)?);
        return Ok(());
    }
    serve(settings)
}

fn serve(settings: Settings) -> Result<(), ServerError> {
    install_logs(settings.log_format, &settings.log)?;
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    runtime.block_on(async { Server::new(settings).await?.run().await })
}
