//! The command `explain`: the rules of a file, each with its result for one request.

use http::request::Parts;
use plimsoll::{Charge, Key};
use plimsoll_control::{Config, ExplainedRule, Explanation};
use serde_json::{Value, json};

use crate::{
    args::{Explained, Target},
    client::{Client, Failure, escaped},
    output::{self, printable},
    request,
};

/// Explains a request by the rules of the file. If the arguments name an admin page, its service adds where the keys stand.
pub(crate) fn run(args: Explained, target: Target) -> Result<(Value, String), Failure> {
    let config = Config::from_path(&args.file.path).map_err(Failure::of)?;
    let (head, route) = request::head(&args, &config.routes())?;
    let explanation = config.explain(&head);
    let client = target.admin.is_some().then(|| Client::new(target)).transpose()?;
    let rules = explanation.rules.iter().enumerate().map(|(index, it)| {
        let charges = it.charges.iter().map(|charge| {
            let mut shown = of_charge(charge, args.show_keys);
            if let Some(client) = client.as_ref().filter(|_| explanation.exempt.is_none()) {
                shown["standing"] = standing(client, charge)?;
            }
            Ok(shown)
        });
        let charges = charges.collect::<Result<Vec<_>, Failure>>()?;
        let ExplainedRule { rule, notes, .. } = it;
        let applies = explanation.exempt.is_none() && !charges.is_empty();
        Ok(json!({
            "number": index + 1, "rule": rule, "applies": applies, "notes": notes, "charges": charges,
        }))
    });
    let rules: Value = rules.collect::<Result<Vec<_>, Failure>>()?.into();
    let text = text(&head, &explanation, &rules);
    let value = json!({
        "method": head.method.as_str(), "path": head.uri.to_string(), "from": args.from,
        "route": route, "exempt": explanation.exempt, "rules": rules,
    });
    Ok((value, text))
}

fn of_charge(charge: &Charge<'_>, shows_keys: bool) -> Value {
    let kind = match (charge.is_live(), charge.is_trial()) {
        (true, _) => "live",
        (false, true) => "trial",
        (false, false) => "shadow",
    };
    let quota = charge.quota();
    let algorithm =
        if quota.is_concurrent() { "concurrent".into() } else { quota.algorithm().to_string() };
    json!({
        "policy": charge.policy().name(),
        "key": if shows_keys { revealed(charge.key()) } else { digest(charge.key()) },
        "cost": charge.cost(),
        "quota": quota.to_string(),
        "algorithm": algorithm,
        "kind": kind,
        "on_failure": format!("{:?}", charge.on_failure()).to_lowercase(),
    })
}

/// Returns where the key of a charge stands in the running service.
fn standing(client: &Client, charge: &Charge<'_>) -> Result<Value, Failure> {
    let mut found = client.get(&format!("keys?key={}", escaped(&revealed(charge.key()))))?;
    let rows = found["standings"].as_array_mut().map(std::mem::take).unwrap_or_default();
    let policy = charge.policy().name();
    let row = rows.into_iter().find(|row| row["policy"] == policy);
    Ok(row.unwrap_or_else(
        || json!({ "policy": policy, "no_data": "No data because the service has no such policy" }),
    ))
}

fn revealed(key: &Key) -> String {
    key.display_revealed().to_string()
}

/// Returns the digest of a key, as in log lines and on the admin page.
fn digest(key: &Key) -> String {
    let text = format!("{key:?}");
    text.trim_start_matches("Key(").trim_end_matches(')').to_owned()
}

fn text(head: &Parts, explanation: &Explanation, rules: &Value) -> String {
    let mut lines = vec![format!("{} {}", head.method, head.uri)];
    if let Some(cause) = &explanation.exempt {
        lines.push(format!("no rule applies: {cause}"));
    }
    let rules = rules.as_array().map_or(&[][..], Vec::as_slice);
    if rules.is_empty() {
        lines.push("the file has no rules".to_owned());
    }
    let mut standings = Vec::new();
    for rule in rules {
        lines.push(format!("\nrule {}: {}", rule["number"], text_of(&rule["rule"])));
        let charges = rule["charges"].as_array().map_or(&[][..], Vec::as_slice);
        let applies = if charges.is_empty() { "  does not apply" } else { "  applies" };
        let notes = rule["notes"].as_array().into_iter().flatten().map(text_of);
        let notes: Vec<_> = notes.collect();
        let colon = if notes.is_empty() { "" } else { ": " };
        // An exempt request has no result.
        if explanation.exempt.is_none() {
            lines.push(format!("{applies}{colon}{}", notes.join("; ")));
            lines.extend(charges.iter().map(of_line));
            standings.extend(charges.iter().map(|it| it["standing"].clone()));
        }
    }
    standings.retain(|it| !it.is_null());
    let mut lines: Vec<_> = lines.iter().flat_map(|it| it.split('\n')).map(printable).collect();
    if !standings.is_empty() {
        lines.push("\nnow:".to_owned());
        lines.push(output::standings(&standings.into()));
    }
    lines.join("\n")
}

/// Returns the line of a charge, such as `api: 100/min (sliding-log), 1 unit of the key #1f2e3d4c`.
fn of_line(charge: &Value) -> String {
    let [policy, quota, algorithm, key, kind] =
        ["policy", "quota", "algorithm", "key", "kind"].map(|field| text_of(&charge[field]));
    let counted =
        if quota.contains(&algorithm) { String::new() } else { format!(" ({algorithm})") };
    let units = if charge["cost"] == 1 { "unit" } else { "units" };
    let kind = match &*kind {
        "live" => String::new(),
        other => format!("; {other}: it denies no request"),
    };
    format!("  {policy}: {quota}{counted}, {} {units} of the key {key}{kind}", charge["cost"])
}

fn text_of(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}
