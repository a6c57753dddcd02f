//! Shows and changes the limits of a service from a shell.

mod args;
mod check;
mod client;
mod commands;
mod explain;
mod limiter;
mod output;
mod replay;
mod request;
mod run;
mod top;
mod view;

use std::{
    io::{Write, stderr},
    process::ExitCode,
};

use clap::{CommandFactory, Parser};
use serde_json::json;

use args::{Cli, Command};
use client::Failure;

fn main() -> ExitCode {
    let cli = Cli::parse();
    let is_json = cli.json;
    let (ran, failed) = match cli.command {
        Command::Completions { shell } => (completions(shell), ExitCode::FAILURE),
        Command::Check { key, cost, limits } => {
            (check::run(&key, cost, &limits, is_json), ExitCode::FAILURE)
        }
        Command::Replay(args) => (replay::run(&args, is_json), ExitCode::FAILURE),
        Command::Run(args) => (run::run(&args, is_json), ExitCode::from(run::FAILED)),
        _ => (commands::run(cli).map(|()| ExitCode::SUCCESS), ExitCode::FAILURE),
    };
    match ran {
        Ok(status) => status,
        Err(failure) if failure.is_unread() => ExitCode::SUCCESS,
        Err(failure) => {
            let message = failure.to_string();
            if !message.is_empty() {
                print_error(&message, is_json);
            }
            failed
        }
    }
}

/// Prints the reason why a command has not done what it was asked for.
fn print_error(message: &str, is_json: bool) {
    let text = if is_json { json!({ "error": message }).to_string() } else { message.to_owned() };
    let _ = writeln!(stderr(), "{text}");
}

fn completions(shell: clap_complete::Shell) -> Result<ExitCode, Failure> {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut Cli::command(), "plimsoll", &mut script);
    output::print(String::from_utf8_lossy(&script).trim_end()).map_err(Failure::of_output)?;
    Ok(ExitCode::SUCCESS)
}
