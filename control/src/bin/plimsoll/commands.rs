//! The commands, each a request to the admin API or several, and what they print.

use std::{
    fs,
    io::{Write, stderr},
    path::Path,
    time::Duration,
};

use http::Method;
use plimsoll::clock::{Clock, SystemClock};
use plimsoll_control::Config;
use serde_json::{Value, json};

use crate::{
    args::{Cli, Command, KeyOfPolicies, NewLimit, OverrideArgs},
    client::{Client, Failure, escaped},
    explain, output, top,
};

/// Runs a command, and prints what it has found or changed.
pub(crate) fn run(cli: Cli) -> Result<(), Failure> {
    match cli.command {
        Command::CheckConfig { file } => return check_config(&file, cli.json),
        Command::Explain(args) => {
            let (value, text) = explain::run(args, cli.target)?;
            return print(&if cli.json { output::json(&value) } else { text });
        }
        _ => {}
    }
    let client = Client::new(cli.target)?;
    if let Command::Top(args) = cli.command {
        return top::run(client, args, cli.json);
    }
    let client = &client;
    let (value, text) = match cli.command {
        Command::Peek { key } => {
            let standings = standings(client, &key)?;
            let text = output::standings(&standings);
            (standings, text)
        }
        Command::Reset { key, why } => {
            return change(client, "reset", &key, json!({ "reason": why.reason }), cli.json);
        }
        Command::Block { key, time, why } => {
            let body = json!({ "reason": why.reason, "until": until(time) });
            return change(client, "block", &key, body, cli.json);
        }
        Command::Unblock { key, why } => {
            return change(client, "unblock", &key, json!({ "reason": why.reason }), cli.json);
        }
        Command::Override(OverrideArgs { from: Some(file), .. }) => {
            return set_again(client, &file, cli.json);
        }
        Command::Override(args) => overrides(client, args)?,
        Command::Audit { count } => {
            let entries = client.get(&format!("audit?count={count}"))?;
            let table = output::audit(&entries);
            (entries, table)
        }
        Command::CheckConfig { .. }
        | Command::Explain(_)
        | Command::Check { .. }
        | Command::Run(_)
        | Command::Replay(_)
        | Command::Top(_)
        | Command::Completions { .. } => {
            unreachable!("these are not about the admin page, or were run above")
        }
    };
    print(&if cli.json { output::json(&value) } else { text })
}

pub(crate) fn print(text: &str) -> Result<(), Failure> {
    output::print(text).map_err(Failure::of_output)
}

/// Shows the overrides, or changes one.
fn overrides(client: &Client, args: OverrideArgs) -> Result<(Value, String), Failure> {
    let (Some(policy), Some(limit)) = (&args.policy, args.limit) else {
        let mut list = client.get(if args.lost { "status" } else { "overrides" })?;
        let mut empty = "no override is in force";
        if args.lost {
            list = list["overrides"]["lost"].take();
            empty = "no override is lost, as far as this process knows";
        }
        if let (Some(policy), Some(rows)) = (&args.policy, list.as_array_mut()) {
            rows.retain(|row| row["policy"] == **policy);
        }
        let text = output::overrides(&list, empty);
        return Ok((list, text));
    };
    let mut body = json!({ "policy": policy, "reason": args.why.reason });
    set(&mut body, "key", args.key);
    set(&mut body, "version", args.if_version);
    let method = match limit {
        NewLimit::End if args.time.is_some() => {
            return Err(Failure::new("an override ends now: --for belongs to a quota, or to off"));
        }
        NewLimit::End => Method::DELETE,
        NewLimit::Set(quota) => {
            set(&mut body, "quota", Some(quota));
            set(&mut body, "until", args.time.map(until));
            Method::PUT
        }
    };
    let change = client.call(method, "overrides", Some(body))?;
    let text = output::change(&change);
    Ok((change, text))
}

/// Sets the overrides of a file again, without the overrides that have ended. Prints each change. Fails if one was not
/// made, for example because its key has an override by now.
fn set_again(client: &Client, file: &Path, json: bool) -> Result<(), Failure> {
    let name = file.display();
    let text = fs::read_to_string(file)
        .map_err(|error| Failure::new(&format!("{name} cannot be read: {error}")))?;
    let rows: Vec<Value> = serde_json::from_str(&text).map_err(|error| {
        let allowed = "what `plimsoll --json override` prints";
        Failure::new(&format!("{name} is no list of overrides: {error}\nallowed is {allowed}"))
    })?;
    let now = SystemClock::new().now().as_micros() / 1_000;
    let mut failed = 0;
    for row in &rows {
        let key = row["key"].as_str().unwrap_or("all keys");
        let policy = row["policy"].as_str().unwrap_or_default();
        let whose = output::printable(&format!("{key} under {policy}"));
        if row["until"].as_u64().is_some_and(|end| end <= now) {
            let _ = writeln!(stderr(), "{whose}: has ended, and is not set again");
            continue;
        }
        let mut body = json!({
            "policy": row["policy"], "key": row["key"], "reason": row["reason"], "version": 0,
        });
        set(&mut body, "until", row["until"].as_u64().map(|millis| millis.to_string()));
        let (method, path) = match row["kind"].as_str() {
            Some("block") => (Method::POST, "block"),
            kind => {
                set(&mut body, "quota", kind.or(row["kind"]["quota"].as_str()));
                (Method::PUT, "overrides")
            }
        };
        match client.call(method, path, Some(body)) {
            Ok(change) => {
                print(&if json { output::json(&change) } else { output::change(&change) })?
            }
            Err(failure) => {
                failed += 1;
                let _ = writeln!(stderr(), "{whose}: {failure}");
            }
        }
    }
    match failed {
        0 => Ok(()),
        failed => Err(Failure::new(&format!("{failed} of {} overrides were not set", rows.len()))),
    }
}

/// Returns where a key stands, under one policy or under all.
fn standings(client: &Client, key: &KeyOfPolicies) -> Result<Value, Failure> {
    let mut standings = client.get(&format!("keys?key={}", escaped(&key.key)))?["standings"].take();
    if let (Some(policy), Some(rows)) = (&key.policy, standings.as_array_mut()) {
        let known: Vec<_> = rows.iter().filter_map(|row| row["policy"].as_str()).collect();
        if !known.contains(&policy.as_str()) {
            let known = known.join(", ");
            return Err(Failure::new(&format!(
                "there is no policy {policy:?}\nallowed is {known}"
            )));
        }
        rows.retain(|row| row["policy"] == **policy);
    }
    Ok(standings)
}

/// Changes a key under one policy, or under each that has such keys, and prints what each change was.
fn change(
    client: &Client,
    action: &str,
    key: &KeyOfPolicies,
    mut body: Value,
    json: bool,
) -> Result<(), Failure> {
    let policies = match &key.policy {
        Some(policy) => vec![policy.clone()],
        None => {
            let standings = standings(client, key)?;
            let rows = standings.as_array().into_iter().flatten();
            let rows = rows.filter(|row| row["is_key"] != false);
            rows.filter_map(|row| row["policy"].as_str().map(str::to_owned)).collect()
        }
    };
    if policies.is_empty() {
        return Err(Failure::new(
            "no policy has such keys: `plimsoll peek` says what keys they have",
        ));
    }
    body["key"] = key.key.clone().into();
    for policy in policies {
        body["policy"] = policy.into();
        // Each one is printed when it is made, because a later one may fail.
        let change = client.call(Method::POST, action, Some(body.clone()))?;
        print(&if json { output::json(&change) } else { output::change(&change) })?;
    }
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
    let rules = config.rules();
    let hints = config.hints();
    if json {
        let policies: Vec<_> =
            names.map(|(name, quota)| json!({ "name": name, "quota": quota })).collect();
        let valid = json!({ "valid": true, "policies": policies, "rules": rules, "hints": hints });
        return print(&output::json(&valid));
    }
    let mut lines = vec![format!(
        "{} is valid, with {} {} and {} {}",
        path.display(),
        policies.len(),
        if policies.len() == 1 { "policy" } else { "policies" },
        rules.len(),
        if rules.len() == 1 { "rule" } else { "rules" },
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
