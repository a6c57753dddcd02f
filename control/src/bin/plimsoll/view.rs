//! The view of `top` as text: the store, the policies, the keys that are denied most, and the instances.

use std::collections::BTreeMap;

use serde_json::Value;

use crate::{
    args::By,
    output::{self, printable, rows, table, text as cell, time},
};

/// The most rows of each table. `--json` has all.
const MAX_ROWS: usize = 20;

/// Writes what the service has answered.
pub(crate) fn text(view: &Value, by: By) -> String {
    let (fleet, store) = (&view["fleet"], &view["status"]["store"]);
    let mut parts = vec![format!("{}\n{}", of_store(store), of_fleet(fleet))];
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

/// Returns a line about the store.
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
    let latency = latency.map(|seconds| format!("; a response takes {:.2} ms", seconds * 1e3));
    let counted = store["instances"].as_u64();
    let counted = counted.map(|count| format!("; it has counted {count} instances"));
    let line = format!("{state}{}{}", latency.unwrap_or_default(), counted.unwrap_or_default());
    format!("store  {}", printable(&line))
}

/// Returns a line about all instances.
fn of_fleet(fleet: &Value) -> String {
    let mut versions = BTreeMap::<String, usize>::new();
    let instances = rows(&fleet["instances"]);
    for instance in instances {
        *versions.entry(cell(&instance["version"])).or_default() += 1;
    }
    let versions = versions.iter().map(|(version, count)| format!("{count} of version {version}"));
    let versions: Vec<_> = versions.take(MAX_ROWS).collect();
    let sum = |field| rows(&fleet["policies"]).iter().filter_map(|it| it[field].as_f64()).sum();
    let (admitted, denied): (f64, f64) = (sum("admitted_per_second"), sum("denied_per_second"));
    let line = format!(
        "{} announced, {}; {} units/s admitted, {} denied{}",
        instances.len(),
        versions.join(", "),
        rate(admitted),
        rate(denied),
        share(admitted, denied).map(|share| format!(" ({share})")).unwrap_or_default(),
    );
    let error = fleet["error"].as_str().map(|error| format!("\n       {}", printable(error)));
    format!("fleet  {}{}", printable(&line), error.unwrap_or_default())
}

/// Returns the table of the policies, those that deny most first.
fn policies(policies: &Value, units: &Value) -> String {
    let units = rows(units).iter().filter_map(|it| Some((it["policy"].as_str()?, it)));
    let units: BTreeMap<_, _> = units.collect();
    let of = |policy: &Value, field| {
        let units = policy["name"].as_str().and_then(|name| units.get(name));
        units.and_then(|units| units[field].as_f64()).unwrap_or(0.0)
    };
    let mut sorted = rows(policies).to_vec();
    let denied = |policy: &Value| of(policy, "denied_per_second");
    sorted.sort_by(|a, b| denied(b).total_cmp(&denied(a)));
    let head = ["policy", "quota", "admitted/s", "denied/s", "denied %"];
    let policies = first(&Value::Array(sorted));
    let table = table(head, rows(&policies), |policy| {
        let (admitted, denied) = (of(policy, "admitted_per_second"), denied(policy));
        let quota =
            if policy["enabled"] == false { "off".to_owned() } else { cell(&policy["quota"]) };
        let share = share(admitted, denied).unwrap_or_default();
        [cell(&policy["name"]), quota, rate(admitted), rate(denied), share]
    });
    output::or_else(table, &policies, "no policy is registered")
}

/// Returns the table of the instances, the newest first: they are the ones that were not there before.
fn instances(fleet: &Value) -> String {
    let mut newest = rows(&fleet["instances"]).to_vec();
    newest.reverse();
    let now = fleet["time"].as_u64().unwrap_or_default();
    let head = ["instance", "version", "since", "last seen", "admitted/s", "denied/s"];
    let newest = first(&Value::Array(newest));
    let table = table(head, rows(&newest), |it| {
        let seen_millis = now.saturating_sub(it["last_seen"].as_u64().unwrap_or_default());
        let this = if it["is_this"] == true { " answers" } else { "" };
        let of = |field: &str| rate(it[field].as_f64().unwrap_or(0.0));
        [
            format!("{}{this}", cell(&it["id"])),
            cell(&it["version"]),
            time(&it["since"]),
            format!("{:.1} s ago", seen_millis as f64 / 1e3),
            of("admitted_per_second"),
            of("denied_per_second"),
        ]
    });
    output::or_else(table, &newest, "no instance has announced itself")
}

/// Returns the rows that are shown.
fn first(value: &Value) -> Value {
    Value::Array(rows(value).iter().take(MAX_ROWS).cloned().collect())
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
    use serde_json::json;

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
        assert!(widest <= Some(110), "{widest:?}\n{text}");
        assert!(!text.contains('\u{1b}') && text.contains("1.4.2"), "{text}");
    }
}
