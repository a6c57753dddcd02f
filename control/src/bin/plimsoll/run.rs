//! The command `run`: another command, if its units are admitted.

use std::{
    io,
    process::{Command, ExitCode},
    time::Duration,
};

use plimsoll::{Decision, Key, decision::Denied};

use crate::{
    args::Run,
    client::Failure,
    limiter::{SharedLimiter, charge, runtime},
    print_error,
};

/// The exit status if the key is limited: EX_TEMPFAIL of sysexits.h, which asks to try again later.
pub(crate) const DENIED: u8 = 75;
/// The exit status if nothing was decided, as of `timeout` and `env`. 1 and 2 may be the status of the command.
pub(crate) const FAILED: u8 = 125;
/// The exit status if the command cannot be run, as in a shell.
const CANNOT_RUN: u8 = 126;
/// The exit status if there is no such command, as in a shell.
const NOT_FOUND: u8 = 127;

/// Charges the key, and becomes the command if it is admitted.
pub(crate) fn run(args: &Run, is_json: bool) -> Result<ExitCode, Failure> {
    let denial = runtime()?.block_on(denial(args))?;
    if let Some(message) = denial {
        print_error(&message, is_json);
        return Ok(ExitCode::from(DENIED));
    }
    // Each element of the command is one argument: no shell reads it.
    let [program, arguments @ ..] = &args.command[..] else {
        return Err(Failure::new("there is no command"));
    };
    let ran = become_command(Command::new(program).args(arguments));
    Ok(ran.unwrap_or_else(|error| {
        print_error(&format!("{}: {error}", program.display()), is_json);
        let is_missing = error.kind() == io::ErrorKind::NotFound;
        ExitCode::from(if is_missing { NOT_FOUND } else { CANNOT_RUN })
    }))
}

/// Charges the key. Returns why it is limited, or `None` if it is admitted.
async fn denial(args: &Run) -> Result<Option<String>, Failure> {
    let shared = SharedLimiter::connect(&args.limits).await?;
    let registered = shared.policy(&args.policy)?;
    if registered.policy().quota().is_concurrent() {
        return Err(Failure::new(&format!(
            "the policy {} limits requests in flight, and the command takes the place of the process that would give \
             the unit back, allowed is a policy with a window",
            args.policy
        )));
    }
    if !registered.is_enabled() {
        return Ok(None);
    }
    let key = match &args.key {
        Some(text) => registered.keys().parse(text).map_err(Failure::of)?,
        None => Key::ANONYMOUS,
    };
    let charge = charge(&registered, key, args.cost);
    let decided = match args.wait {
        Some(wait) => shared.limiter.until_ready(charge, wait).await,
        None => shared.limiter.check(charge).await,
    };
    let decision = decided.map_err(Failure::of)?;
    let denial = match &decision {
        Decision::Allowed(_) => None,
        Decision::Denied(denied) if denied.is_over_capacity() => {
            let capacity = denied.binding().map(|it| it.charge().quota().capacity());
            return Err(Failure::new(&format!(
                "the cost is {}, and the policy {} admits at most {} at once",
                args.cost,
                args.policy,
                capacity.unwrap_or_default()
            )));
        }
        Decision::Denied(denied) => Some(message(args, denied)),
    };
    shared.close().await;
    Ok(denial)
}

fn message(args: &Run, denied: &Denied<'_>) -> String {
    let binding = denied.binding().map(|outcome| *outcome.standing());
    let (remaining, limit) = binding.map_or((0, 0), |it| (it.remaining, it.limit));
    let mut message = format!(
        "denied: the command costs {}, and the key has {remaining} of {limit} units left under the policy {}",
        args.cost, args.policy
    );
    if let Some(wait) = denied.retry_after() {
        let rounded = Duration::from_millis(wait.as_micros().div_ceil(1_000) as u64);
        message += &format!("; try again in {}", humantime::format_duration(rounded));
    }
    message
}

/// Replaces this process by the command, so that signals and the terminal are the command's. Returns the error if the
/// command does not start.
#[cfg(unix)]
fn become_command(command: &mut Command) -> Result<ExitCode, io::Error> {
    use std::os::unix::process::CommandExt;

    Err(command.exec())
}

/// Runs the command, and returns its exit status.
#[cfg(not(unix))]
fn become_command(command: &mut Command) -> Result<ExitCode, io::Error> {
    let status = command.status()?;
    let code = status.code().and_then(|it| u8::try_from(it).ok());
    Ok(ExitCode::from(code.unwrap_or(1)))
}
