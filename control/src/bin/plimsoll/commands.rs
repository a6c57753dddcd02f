//! The commands, each a request to the admin API or several, and what they print.

use std::{
    cmp::Reverse,
    io::{IsTerminal, Write, stderr, stdout},
    path::Path,
    time::Duration,
};

use http::Method;
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use plimsoll_control::Config;
use serde_json::{Value, json};

use crate::{
    args::{By, Cli, Command, KeyOfPolicy, OverrideCommand},
    client::{Client, Failure},
    output, plan,
};

/// Runs a command, and prints what it has found or changed.
pub(crate) async fn run(cli: Cli, user: &str) -> Result<(), Failure> {
    if let Command::CheckConfig { file } = &cli.command {
        let missing = "no file is named: plimsoll check-config FILE";
        let path = file.as_ref().or(cli.target.config.as_ref());
        return check_config(path.ok_or_else(|| Failure::new(missing))?, cli.json);
    }
    if let Command::Plan(args) = &cli.command {
        let (value, text) = plan::run(args)?;
        println!("{}", if cli.json { output::json(&value) } else { text });
        return Ok(());
    }
    let mut client = Client::connect(&cli.target, user).await?;
    let client = &mut client;
    if let Command::Watch { every, count } = &cli.command {
        return watch(client, *every, *count, cli.json).await;
    }
    let (value, text) = match cli.command {
        Command::Peek { key, policy } => {
            let mut standings =
                client.get(&format!("keys?key={}", escaped(&key))).await?["standings"].take();
            keep_policy(&mut standings, policy.as_deref())?;
            let text = output::standings(&standings);
            (standings, text)
        }
        Command::Top { policy, by } => {
            let offenders = top(client, policy.as_deref(), by).await?;
            let text = output::offenders(&offenders, by);
            (offenders, text)
        }
        Command::Reset { key, why } => {
            let change = change(client, "reset", &key, json!({ "reason": why.reason })).await?;
            let text = output::change(&change);
            (change, text)
        }
        Command::Block { key, time, why } => {
            let until = until(time);
            let body = json!({ "reason": why.reason, "until": until });
            let change = change(client, "block", &key, body).await?;
            let text = output::change(&change);
            (change, text)
        }
        Command::Unblock { key, why } => {
            let change = change(client, "unblock", &key, json!({ "reason": why.reason })).await?;
            let text = output::change(&change);
            (change, text)
        }
        Command::Override(command) => overrides(client, command).await?,
        Command::Audit { count } => {
            let entries = client.get(&format!("audit?count={count}")).await?;
            let text = output::audit(&entries);
            (entries, text)
        }
        Command::CheckConfig { .. }
        | Command::Watch { .. }
        | Command::Completions { .. }
        | Command::Plan(_) => {
            unreachable!("these need no connection, or were run above")
        }
    };
    print(&if cli.json { output::json(&value) } else { text })
}

fn print(text: &str) -> Result<(), Failure> {
    output::print(text).map_err(Failure::of_output)
}

async fn overrides(
    client: &mut Client,
    command: OverrideCommand,
) -> Result<(Value, String), Failure> {
    let put =
        async |client: &mut Client, body| client.call(Method::PUT, "overrides", Some(body)).await;
    let change = match command {
        OverrideCommand::List => {
            let list = client.get("overrides").await?;
            let text = output::overrides(&list);
            return Ok((list, text));
        }
        OverrideCommand::Set { policy, key, quota, time, version, why } => {
            let mut body =
                json!({ "policy": policy, "quota": quota.to_string(), "reason": why.reason });
            set(&mut body, "key", key);
            set(&mut body, "until", time.map(until));
            set(&mut body, "version", version.if_version);
            put(client, body).await?
        }
        OverrideCommand::Off { policy, time, version, why } => {
            let mut body = json!({ "policy": policy, "quota": "off", "reason": why.reason });
            set(&mut body, "until", time.map(until));
            set(&mut body, "version", version.if_version);
            put(client, body).await?
        }
        OverrideCommand::Remove { policy, key, why } => {
            let mut body = json!({ "policy": policy, "reason": why.reason });
            set(&mut body, "key", key);
            client.call(Method::DELETE, "overrides", Some(body)).await?
        }
    };
    let text = output::change(&change);
    Ok((change, text))
}

/// Shows the policies and the keys that are limited, again and again, also after a time in which there was no
/// answer.
async fn watch(
    client: &mut Client,
    every: Duration,
    count: Option<u64>,
    json: bool,
) -> Result<(), Failure> {
    let mut tries = 0;
    loop {
        let shown = screen(client, json).await;
        tries += 1;
        if count.is_some_and(|count| tries >= count) {
            return shown;
        }
        if let Err(failure) = shown {
            if !failure.may_pass() {
                return Err(failure);
            }
            let next = humantime::format_duration(every);
            let _ = writeln!(stderr(), "{failure}\nthe next try is in {next}");
        }
        tokio::time::sleep(every).await;
    }
}

/// Shows the policies and the keys that are limited now.
async fn screen(client: &mut Client, json: bool) -> Result<(), Failure> {
    let policies = client.get("policies").await?;
    let offenders = top(client, None, By::Denied).await?;
    if json {
        return print(&json!({ "policies": policies, "offenders": offenders }).to_string());
    }
    // Clears the screen, and begins at its top.
    let clear = if stdout().is_terminal() { "\x1b[2J\x1b[H" } else { "" };
    let offenders = output::offenders(&offenders, By::Denied);
    // The processes of the service have the rates. This one decides nothing.
    let note = client.is_local().then_some("No data because only --admin URL shows rates");
    print(&format!("{clear}{}\n\n{offenders}", output::policies(&policies, note)))
}

/// Returns the keys that are denied or that spend most, of one policy or of all.
async fn top(client: &mut Client, policy: Option<&str>, by: By) -> Result<Value, Failure> {
    let policies = match policy {
        Some(policy) => vec![policy.to_owned()],
        None => names(&client.get("policies").await?),
    };
    let mut rows = Vec::new();
    for policy in policies {
        let order = match by {
            By::Denied => "denied",
            By::Spent => "spent",
        };
        let path = format!("offenders?policy={}&by={order}", escaped(&policy));
        let offenders = client.get(&path).await?;
        for mut offender in offenders.as_array().cloned().unwrap_or_default() {
            offender["policy"] = policy.clone().into();
            rows.push(offender);
        }
    }
    rows.sort_by_key(|row| {
        let (denied, spent) = (row["denied"].as_u64(), row["spent"].as_u64());
        Reverse(match by {
            By::Denied => (denied, spent),
            By::Spent => (spent, denied),
        })
    });
    Ok(Value::Array(rows))
}

fn names(policies: &Value) -> Vec<String> {
    let policies = policies.as_array().into_iter().flatten();
    policies.filter_map(|policy| policy["name"].as_str().map(str::to_owned)).collect()
}

async fn change(
    client: &mut Client,
    action: &str,
    key: &KeyOfPolicy,
    mut body: Value,
) -> Result<Value, Failure> {
    body["policy"] = key.policy.clone().into();
    body["key"] = key.key.clone().into();
    client.call(Method::POST, action, Some(body)).await
}

fn keep_policy(standings: &mut Value, policy: Option<&str>) -> Result<(), Failure> {
    let (Some(policy), Some(rows)) = (policy, standings.as_array_mut()) else { return Ok(()) };
    let known: Vec<_> = rows.iter().filter_map(|row| row["policy"].as_str()).collect();
    if !known.contains(&policy) {
        let known = known.join(", ");
        return Err(Failure::new(&format!("there is no policy {policy:?}\nallowed is {known}")));
    }
    rows.retain(|row| row["policy"] == policy);
    Ok(())
}

fn check_config(path: &Path, json: bool) -> Result<(), Failure> {
    let config = match Config::from_path(path) {
        Ok(config) => config,
        Err(error) if json => {
            let mistake = json!({ "valid": false, "error": error.to_string() });
            print(&output::json(&mistake))?;
            return Err(Failure::new(""));
        }
        Err(error) => return Err(Failure::of(error)),
    };
    let policies = config.registry().policies();
    let names = policies.iter().map(|it| (it.policy().name(), it.policy().quota().to_string()));
    let (rules, hints) = (config.rules(), config.hints());
    if json {
        let policies: Vec<_> =
            names.map(|(name, quota)| json!({ "name": name, "quota": quota })).collect();
        let valid = json!({ "valid": true, "policies": policies, "rules": rules, "hints": hints });
        return print(&output::json(&valid));
    }
    let counted =
        |count: usize, one, many| format!("{count} {}", if count == 1 { one } else { many });
    let mut lines = vec![format!(
        "{} is valid, with {} and {}",
        path.display(),
        counted(policies.len(), "policy", "policies"),
        counted(rules.len(), "rule", "rules"),
    )];
    lines.extend(names.map(|(name, quota)| format!("  policy  {name}  {quota}")));
    lines.extend(rules.iter().map(|rule| format!("  rule    {rule}")));
    lines.extend(hints.iter().map(|hint| format!("  hint    {hint}")));
    print(&lines.join("\n"))
}

/// Returns the end of a change as the service reads it: this far from its own time.
fn until(time: Duration) -> Value {
    format!("{}s", time.as_secs().max(1)).into()
}

/// Sets a field that is optional.
fn set(body: &mut Value, field: &str, value: Option<impl Into<Value>>) {
    if let Some(value) = value {
        body[field] = value.into();
    }
}

fn escaped(text: &str) -> String {
    utf8_percent_encode(text, NON_ALPHANUMERIC).to_string()
}
