//! Shows and changes the limits of a service from a shell.

mod args;
mod client;
mod commands;
mod output;
mod plan;

use std::{env, io::stdout, process::ExitCode};

use clap::{CommandFactory, Parser};

use args::{Cli, Command};

#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    let mut cli = Cli::parse();
    cli.target = cli.target.with_environment();
    if let Command::Completions { shell } = cli.command {
        clap_complete::generate(shell, &mut Cli::command(), "plimsoll", &mut stdout());
        return ExitCode::SUCCESS;
    }
    let user = env::var("USER").ok().filter(|user| !user.is_empty());
    match commands::run(cli, user.as_deref().unwrap_or("command line")).await {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            eprintln!("{failure}");
            ExitCode::FAILURE
        }
    }
}
