//! The arguments of the command line.

use std::{path::PathBuf, time::Duration};

use clap::{Args, Parser, Subcommand, ValueEnum};
use plimsoll::Quota;

use crate::replay::ReplayArgs;

/// Shows and changes the limits of a service through its admin page.
#[derive(Debug, Parser)]
#[command(name = "plimsoll", version, max_term_width = 100)]
pub(crate) struct Cli {
    #[command(flatten)]
    pub(crate) target: Target,
    /// Print JSON instead of tables.
    #[arg(long, global = true)]
    pub(crate) json: bool,
    #[command(subcommand)]
    pub(crate) command: Command,
}

/// The service that the commands are about.
#[derive(Debug, Clone, Args)]
pub(crate) struct Target {
    /// The admin page of the service: https://HOST/admin/. The default is the page of plimsoll-server on this machine.
    #[arg(
        long,
        global = true,
        value_name = "URL",
        env = "PLIMSOLL_ADMIN_URL",
        default_value = "http://127.0.0.1:6070/",
        hide_default_value = true
    )]
    pub(crate) admin: String,
    /// The token of an operator.
    #[arg(long, global = true, env = "PLIMSOLL_ADMIN_TOKEN", hide_env_values = true)]
    pub(crate) token: Option<String>,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Show where a key stands under each policy.
    Peek {
        #[command(flatten)]
        key: KeyOfPolicies,
    },
    /// Show the instances, the rates of all of them, the store, and the keys that are denied most, each second.
    ///
    /// The keys q and ctrl-c end it. Where no terminal shows it, it prints once, as with --once.
    Top(TopArgs),
    /// Give a key back all units that it has spent.
    Reset {
        #[command(flatten)]
        key: KeyOfPolicies,
        #[command(flatten)]
        why: Why,
    },
    /// Deny all requests of a key for a time.
    Block {
        #[command(flatten)]
        key: KeyOfPolicies,
        /// The time of the block: 10m, 2h, 1day, of at most 400 days.
        #[arg(long = "for", value_name = "TIME", default_value = "1h", value_parser = time_of_change)]
        time: Duration,
        #[command(flatten)]
        why: Why,
    },
    /// End the block of a key.
    Unblock {
        #[command(flatten)]
        key: KeyOfPolicies,
        #[command(flatten)]
        why: Why,
    },
    /// Change a limit on all instances, or show what is changed.
    ///
    /// `override` shows the overrides in force. `override demo 500/min --for 2h` changes a quota, `override demo off`
    /// switches a policy off, and `override demo end` ends its override.
    Override(OverrideArgs),
    /// Show what was changed, by whom and why.
    Audit {
        /// The most entries.
        #[arg(long, short = 'n', default_value_t = 20)]
        count: usize,
    },
    /// Read a configuration file and say what is wrong with it.
    CheckConfig {
        /// The file.
        file: PathBuf,
    },
    /// Judge the requests of access logs by limits: which would have been denied?
    ///
    /// Without --limit and --limits, it recommends a limit. With --json, the report is JSON.
    Replay(Box<ReplayArgs>),
    /// Write the completion of a shell.
    Completions {
        #[arg(value_enum)]
        shell: clap_complete::Shell,
    },
}

#[derive(Debug, Clone, Args)]
pub(crate) struct TopArgs {
    /// Only this policy.
    #[arg(long, short)]
    pub(crate) policy: Option<String>,
    /// The order of the keys.
    #[arg(long, value_enum, default_value_t)]
    pub(crate) by: By,
    /// Print once, and end.
    #[arg(long)]
    pub(crate) once: bool,
}

#[derive(Debug, Clone, Args)]
pub(crate) struct OverrideArgs {
    /// The policy.
    pub(crate) policy: Option<String>,
    /// The quota as in a configuration file, such as 500/min or "20 concurrent"; or off, or end.
    #[arg(value_parser = limit)]
    pub(crate) limit: Option<NewLimit>,
    /// Only this key.
    #[arg(long, short)]
    pub(crate) key: Option<String>,
    /// The time for which it is in force: 2h. Without it, until it is ended.
    #[arg(long = "for", value_name = "TIME", value_parser = time_of_change, requires = "limit")]
    pub(crate) time: Option<Duration>,
    /// Set the overrides of a file again, which `--json override` has written. One that is there stays, and one that has
    /// ended is left out.
    #[arg(long, value_name = "FILE", conflicts_with_all = ["policy", "lost"])]
    pub(crate) from: Option<PathBuf>,
    /// Show the overrides that Redis has lost, as the instance behind the admin page knows them.
    #[arg(long, conflicts_with = "limit")]
    pub(crate) lost: bool,
    /// Only if the override has this version, which `override` shows. 0: only if there is none.
    #[arg(long, value_name = "VERSION", requires = "limit")]
    pub(crate) if_version: Option<u64>,
    #[command(flatten)]
    pub(crate) why: Why,
}

/// The limit that an operator asks for.
#[derive(Debug, Clone)]
pub(crate) enum NewLimit {
    /// A quota, or `off`.
    Set(String),
    /// The limit without an override.
    End,
}

/// The order of the keys of `top`.
#[derive(Debug, Clone, Copy, Default, ValueEnum)]
pub(crate) enum By {
    /// Most denials first.
    #[default]
    Denied,
    /// Most units first.
    Spent,
}

#[derive(Debug, Clone, Args)]
pub(crate) struct KeyOfPolicies {
    /// The key as the rules of the policy write it: 42, 192.0.2.1, alice.
    pub(crate) key: String,
    /// Only under this policy. Without it, under each policy that has such keys.
    #[arg(long, short)]
    pub(crate) policy: Option<String>,
}

#[derive(Debug, Clone, Args)]
pub(crate) struct Why {
    /// The reason, for the audit log.
    #[arg(long, short, default_value = "(none given)", hide_default_value = true)]
    pub(crate) reason: String,
}

/// Reads a quota, `off` or `end`.
fn limit(text: &str) -> Result<NewLimit, String> {
    match text {
        "end" => Ok(NewLimit::End),
        "off" => Ok(NewLimit::Set("off".into())),
        quota => {
            quota.parse().map(|quota: Quota| NewLimit::Set(quota.to_string())).map_err(|error| {
                format!("{error}; allowed is a quota such as 500/min, or off, or end")
            })
        }
    }
}

/// Reads the time for which a change is in force. The service counts it in seconds.
fn time_of_change(text: &str) -> Result<Duration, String> {
    let times = Duration::from_secs(1)..=Duration::from_secs(400 * 86_400);
    let time = humantime::parse_duration(text).ok().filter(|time| times.contains(time));
    time.ok_or_else(|| "allowed is a time of 1s to 400days, such as 10m, 2h or 1day".to_owned())
}
