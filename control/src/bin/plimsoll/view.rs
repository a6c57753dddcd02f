//! The view of `top` as text: the store, the policies, the keys that are denied most, and the instances.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use crate::{
    args::By,
    output::{self, printable, rows, table, text as cell, time},
};

/// The most rows of each table. `--json` has all.
const MAX_ROWS: usize = 20;

/// Writes what the service has answered.
pub(crate) fn text(view: &Value, by: By) -> String {
    let fleet = &view["fleet"];
    let mut parts = vec![format!("{}\n{}", of_store(&view["status"]["store"]), of_fleet(fleet))];
    parts.push(policies(&view["policies"], &fleet["policies"]));
    let order = match by {
        By::Denied => "denied most",
        By::Spent => "charged most",
    };
    let offenders = output::offenders(&first(&view["offenders"]), by);
    parts.push(format!("keys that are {order}, by the instance that answers\n{offenders}"));
    parts.push(instances(fleet));
    parts.join("\n\n")
}

/// Returns the state of the breaker, and what is known of the store on a line of its own.
fn of_store(store: &Value) -> String {
    let breaker = &store["breaker"];
    let state = match breaker["state"].as_str() {
        Some("closed") => "the breaker is closed".to_owned(),
        Some(state) => format!(
            "THE BREAKER IS {} for {}: each instance decides by itself, under its share",
            state.to_uppercase(),
            output::seconds(&breaker["open_seconds"]),
        ),
        None => cell(&breaker["no_data"]),
    };
    let latency = store["latency_seconds"].as_f64();
    let latency = latency.map(|seconds| format!("a response takes {:.2} ms", seconds * 1e3));
    let counted = store["instances"].as_u64();
    let counted = counted.map(|count| format!("it has counted {count} instances"));
    let known: Vec<_> = latency.into_iter().chain(counted).collect();
    let mut text = format!("store  {}", printable(&state));
    if !known.is_empty() {
        text += &format!("\n       {}", known.join("; "));
    }
    text
}

/// Returns a line about all instances.
fn of_fleet(fleet: &Value) -> String {
    let mut versions = BTreeMap::<String, usize>::new();
    let instances = rows(&fleet["instances"]);
    for instance in instances {
        *versions.entry(cell(&instance["version"])).or_default() += 1;
    }
    let versions = versions.iter().map(|(version, count)| format!("{count} of version {version}"));
    let admitted: f64 = rows(&fleet["policies"]).iter().map(admitted).sum();
    let denied: f64 = rows(&fleet["policies"]).iter().map(denied).sum();
    let line = format!(
        "{} announced, {}; {} units/s admitted, {} denied{}",
        instances.len(),
        versions.take(MAX_ROWS).collect::<Vec<_>>().join(", "),
        rate(admitted),
        rate(denied),
        share(admitted, denied).map(|share| format!(" ({share})")).unwrap_or_default(),
    );
    let error = fleet["error"].as_str().map(|error| format!("\n       {}", printable(error)));
    format!("fleet  {}{}", printable(&line), error.unwrap_or_default())
}

/// Returns the table of the policies, those that deny most first.
fn policies(policies: &Value, units: &Value) -> String {
    let by_name: BTreeMap<_, _> = rows(units).iter().map(|it| (cell(&it["policy"]), it)).collect();
    let mut sorted: Vec<_> = rows(policies)
        .iter()
        .map(|policy| {
            (policy, by_name.get(&cell(&policy["name"])).copied().unwrap_or(&Value::Null))
        })
        .collect();
    sorted.sort_by(|(_, a), (_, b)| denied(b).total_cmp(&denied(a)));
    let pairs: Vec<_> = sorted.iter().map(|(policy, units)| json!([policy, units])).collect();
    let policies = first(&Value::Array(pairs));
    let head = ["policy", "quota", "admitted/s", "denied/s", "denied %"];
    let table = table(head, rows(&policies), |pair| {
        let [policy, units] = [&pair[0], &pair[1]];
        let is_off = policy["enabled"] == false;
        let quota = if is_off { "off".to_owned() } else { cell(&policy["quota"]) };
        let share = share(admitted(units), denied(units)).unwrap_or_default();
        [cell(&policy["name"]), quota, rate(admitted(units)), rate(denied(units)), share]
    });
    output::or_else(table, &policies, "no policy is registered")
}

/// Returns the table of the instances, the newest first: an operator looks for what has changed.
fn instances(fleet: &Value) -> String {
    let mut newest = rows(&fleet["instances"]).to_vec();
    newest.reverse();
    let now = fleet["time"].as_u64().unwrap_or_default();
    let head = ["instance", "version", "since", "last seen", "admitted/s", "denied/s"];
    let newest = first(&Value::Array(newest));
    let table = table(head, rows(&newest), |it| {
        let seen_millis = now.saturating_sub(it["last_seen"].as_u64().unwrap_or_default());
        let this = if it["is_this"] == true { " answers" } else { "" };
        [
            format!("{}{this}", cell(&it["id"])),
            cell(&it["version"]),
            time(&it["since"]),
            format!("{:.1} s ago", seen_millis as f64 / 1e3),
            rate(admitted(it)),
            rate(denied(it)),
        ]
    });
    output::or_else(table, &newest, "no instance has announced itself")
}

/// Returns the rows that are shown.
fn first(value: &Value) -> Value {
    Value::Array(rows(value).iter().take(MAX_ROWS).cloned().collect())
}

/// Returns the units a second of an instance or a policy that were admitted, or 0 without data.
fn admitted(row: &Value) -> f64 {
    row["admitted_per_second"].as_f64().unwrap_or(0.0)
}

fn denied(row: &Value) -> f64 {
    row["denied_per_second"].as_f64().unwrap_or(0.0)
}

fn rate(units: f64) -> String {
    if units == 0.0 || units >= 100.0 { format!("{units:.0}") } else { format!("{units:.1}") }
}

/// Returns the part that is denied, if there is anything.
fn share(admitted: f64, denied: f64) -> Option<String> {
    (admitted + denied > 0.0).then(|| format!("{:.1} %", 100.0 * denied / (admitted + denied)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn view() -> Value {
        let units = |admitted: f64, denied: f64| json!({ "admitted_per_second": admitted, "denied_per_second": denied });
        let of = |name: &str, value: &str, units: Value| {
            let mut units = units;
            units[name] = value.into();
            units
        };
        let mut instance = of("id", "1f2e3d4c5b6a7988", units(120.0, 40.0));
        instance["version"] = "1.4.2\u{1b}[2J".into();
        (instance["since"], instance["last_seen"]) = (0.into(), 9_700.into());
        json!({
            "status": { "store": {
                "breaker": { "state": "open", "open_seconds": 12.0 },
                "latency_seconds": 0.00042, "instances": 3,
            } },
            "fleet": {
                "time": 10_000, "error": null, "instances": [instance],
                "policies": [of("policy", "quiet", units(20.0, 0.0)), of("policy", "search", units(100.0, 40.0))],
            },
            "policies": [
                { "name": "idle", "quota": "1/min" }, { "name": "quiet", "quota": "9/s", "enabled": false },
                { "name": "search", "quota": "300/min" },
            ],
            "offenders": [{ "policy": "search", "key": "mallory", "denied": 7, "spent": 1 }],
        })
    }

    #[test]
    fn the_policy_that_denies_most_comes_first() {
        let text = text(&view(), By::Denied);
        let place = |part: &str| text.find(part).unwrap_or_else(|| panic!("{part}:\n{text}"));
        assert!(place(" search ") < place(" idle "), "{text}");
        for part in ["28.6 %", "off", "mallory", "1970-01-01T00:00:00Z", "0.3 s ago"] {
            place(part);
        }
        place("THE BREAKER IS OPEN for 12s: each instance decides by itself, under its share");
        place("a response takes 0.42 ms; it has counted 3 instances");
        place("120 units/s admitted, 40.0 denied (25.0 %)");
    }

    #[test]
    fn the_view_fits_100_columns_and_writes_no_escapes() {
        let text = text(&view(), By::Spent);
        let widest = text.lines().map(|line| line.chars().count()).max();
        assert!(widest <= Some(100), "{widest:?}\n{text}");
        assert!(!text.contains('\u{1b}') && text.contains("1.4.2"), "{text}");
    }
}
