//! Shows and changes the limits of a service from a shell.

mod args;
mod client;
mod commands;
mod output;
mod replay;
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
    let ran = match cli.command {
        Command::Completions { shell } => completions(shell).map(|()| ExitCode::SUCCESS),
        Command::Replay(args) => replay::run(&args, is_json),
        _ => commands::run(cli).map(|()| ExitCode::SUCCESS),
    };
    let failure = match ran {
        Ok(code) => return code,
        Err(failure) => failure,
    };
    if failure.is_unread() {
        return ExitCode::SUCCESS;
    }
    let message = failure.to_string();
    if !message.is_empty() {
        let text = if is_json { json!({ "error": message }).to_string() } else { message };
        let _ = writeln!(stderr(), "{text}");
    }
    ExitCode::FAILURE
}

fn completions(shell: clap_complete::Shell) -> Result<(), Failure> {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut Cli::command(), "plimsoll", &mut script);
    output::print(String::from_utf8_lossy(&script).trim_end()).map_err(Failure::of_output)
}
