//! The arguments of the command line.

use std::{ffi::OsString, net::IpAddr, path::PathBuf, time::Duration};

use clap::{Args, Parser, Subcommand, ValueEnum};
use http::{HeaderName, HeaderValue, Method, Uri};
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
    #[arg(long, global = true, value_name = "URL", env = "PLIMSOLL_ADMIN_URL")]
    pub(crate) admin: Option<String>,
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
    /// Show which rules of a file apply to a request, what they charge, and why the others do not apply.
    ///
    /// `explain GET /api/search -H 'x-api-key: 42' --from 203.0.113.9`. Nothing is spent. With --admin, or its variable,
    /// the running service adds where each key stands now.
    Explain(Explained),
    /// Look in the store of a limits file whether a key is limited. Nothing is spent.
    ///
    /// The exit status is 0 if each policy admits the cost now, 75 if one does not, and 1 if the store does not answer.
    Check {
        #[command(flatten)]
        key: KeyOfPolicies,
        /// The units to look for.
        #[arg(long, default_value_t = 1)]
        cost: u64,
        #[command(flatten)]
        limits: Limits,
    },
    /// Charge a key in the store of a limits file, and run a command if it is admitted.
    ///
    /// `run --policy batch --cost 5 -- ./report --all`. The command takes the place of this process, so signals reach it,
    /// and its exit status is the status of `run`. Otherwise the exit status is 75 if the key is limited, 125 if the store
    /// or the file decides nothing, 126 if the command cannot be run, and 127 if there is none.
    Run(Run),
    /// Write the completion of a shell.
    Completions {
        #[arg(value_enum)]
        shell: clap_complete::Shell,
    },
}

/// A command, and what it costs.
#[derive(Debug, Clone, Args)]
pub(crate) struct Run {
    /// The policy.
    #[arg(long, short)]
    pub(crate) policy: String,
    /// The key that is charged. Without it, all runs without a key share one.
    #[arg(long, short)]
    pub(crate) key: Option<String>,
    /// The units that the command costs.
    #[arg(long, default_value_t = 1)]
    pub(crate) cost: u64,
    /// Wait until the units are free, for at most this time. Without a time: for at most one day.
    #[arg(long, value_name = "MAX", num_args = 0..=1, default_missing_value = "1day", value_parser = time_of_change)]
    pub(crate) wait: Option<Duration>,
    #[command(flatten)]
    pub(crate) limits: Limits,
    /// The command and its arguments.
    #[arg(last = true, required = true, value_name = "COMMAND")]
    pub(crate) command: Vec<OsString>,
}

/// The limits of a service, and the store that counts them.
#[derive(Debug, Clone, Args)]
pub(crate) struct Limits {
    #[command(flatten)]
    pub(crate) file: LimitsFile,
    /// The Redis server that all instances share, instead of the server of the file.
    #[arg(long, value_name = "URL", env = "PLIMSOLL_REDIS", hide_env_values = true)]
    pub(crate) redis: Option<String>,
    /// The Redis server of the overrides, with a cluster, sentinels or regions.
    #[arg(long, value_name = "URL", env = "PLIMSOLL_OVERRIDES_REDIS", hide_env_values = true)]
    pub(crate) overrides_redis: Option<String>,
}

/// A request, as the service would receive it.
#[derive(Debug, Clone, Args)]
pub(crate) struct Explained {
    /// The method: GET, POST.
    pub(crate) method: Method,
    /// The path, with its query: /api/search.
    #[arg(value_name = "PATH", value_parser = target)]
    pub(crate) target: Uri,
    /// A header: "x-api-key: 42". May be repeated.
    #[arg(long = "header", short = 'H', value_name = "HEADER", value_parser = header)]
    pub(crate) headers: Vec<(HeaderName, HeaderValue)>,
    /// The address of the peer: 203.0.113.9.
    #[arg(long, value_name = "ADDRESS")]
    pub(crate) from: Option<IpAddr>,
    /// A claim that the authentication of the service would leave: account=42. May be repeated.
    #[arg(long = "claim", value_name = "NAME=VALUE", value_parser = claim)]
    pub(crate) claims: Vec<(String, String)>,
    /// The route of the service that serves the path: "/users/{id}". Without it, the routes of the file are tried.
    #[arg(long, value_parser = route)]
    pub(crate) route: Option<String>,
    /// Show keys as they are, and not as digests.
    #[arg(long)]
    pub(crate) show_keys: bool,
    #[command(flatten)]
    pub(crate) file: LimitsFile,
}

/// The file with the limits of a service.
#[derive(Debug, Clone, Args)]
pub(crate) struct LimitsFile {
    /// The file with the policies and the rules.
    #[arg(
        long = "file",
        value_name = "FILE",
        env = "PLIMSOLL_CONFIG",
        default_value = "limits.toml"
    )]
    pub(crate) path: PathBuf,
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

/// Reads a header as it is sent.
fn header(text: &str) -> Result<(HeaderName, HeaderValue), String> {
    let allowed = || "allowed is a name and a value, such as \"x-api-key: 42\"".to_owned();
    let (name, value) = text.split_once(':').ok_or_else(allowed)?;
    let name = name.trim().parse().map_err(|_| allowed())?;
    Ok((name, value.trim().parse().map_err(|_| allowed())?))
}

/// Reads the target of a request. A text without a slash would be the name of a host.
fn target(text: &str) -> Result<Uri, String> {
    let target: Option<Uri> = text.parse().ok();
    let target = target.filter(|it| text == "*" || it.path().starts_with('/'));
    target.ok_or_else(|| "allowed is a path with its query, such as \"/api/search?q=1\"".to_owned())
}

fn claim(text: &str) -> Result<(String, String), String> {
    let allowed = "allowed is a name and a value, such as account=42";
    let (name, value) = text.split_once('=').ok_or(allowed)?;
    Ok((name.to_owned(), value.to_owned()))
}

fn route(text: &str) -> Result<String, String> {
    if text.contains(' ') {
        return Err("allowed is the path of a route, such as \"/users/{id}\"".to_owned());
    }
    plimsoll::route::validate(text).map_err(|error| error.to_string())?;
    Ok(text.to_owned())
}

/// Reads the time for which a change is in force. The service counts it in seconds.
fn time_of_change(text: &str) -> Result<Duration, String> {
    let times = Duration::from_secs(1)..=Duration::from_secs(400 * 86_400);
    let time = humantime::parse_duration(text).ok().filter(|time| times.contains(time));
    time.ok_or_else(|| "allowed is a time of 1s to 400days, such as 10m, 2h or 1day".to_owned())
}
