//! Tables for people, of the values that the admin API answers.

use std::time::{Duration, SystemTime};

use comfy_table::{ContentArrangement, Table, TableComponent, presets::UTF8_HORIZONTAL_ONLY};
use serde_json::Value;

pub(crate) fn json(value: &Value) -> String {
    serde_json::to_string_pretty(value).unwrap_or_default()
}

pub(crate) fn standings(standings: &Value) -> String {
    let head = ["policy", "quota", "remaining", "next in", "full in", ""];
    let table = table(head, rows(standings), |row| {
        if let Some(cause) = row["no_data"].as_str() {
            let cause = cause.to_owned();
            return [
                text(&row["policy"]),
                String::new(),
                String::new(),
                String::new(),
                String::new(),
                cause,
            ];
        }
        let other = row["counted_by"].as_str().map(|algorithm| {
            format!(
                "its units are counted by {algorithm}: is this the configuration of the service?"
            )
        });
        let note = match () {
            _ if row["admitted"] == false => "limited",
            // A key without spent units is like one that was never charged.
            _ if row["reset_after"] == 0.0 => {
                "no units spent: not charged yet, or all have come back"
            }
            _ if row["is_own_quota"] == true => "own quota",
            _ => "",
        };
        let left = format!("{} of {}", text(&row["remaining"]), text(&row["limit"]));
        [
            text(&row["policy"]),
            text(&row["quota"]),
            left,
            seconds(&row["retry_after"]),
            seconds(&row["reset_after"]),
            other.unwrap_or_else(|| note.to_owned()),
        ]
    });
    or_else(table, standings, "no policy is registered")
}

pub(crate) fn offenders(offenders: &Value) -> String {
    let head = ["policy", "key", "denied", "spent"];
    let table = table(head, rows(offenders), |row| {
        [text(&row["policy"]), text(&row["key"]), text(&row["denied"]), text(&row["spent"])]
    });
    or_else(table, offenders, "no key is denied now")
}

pub(crate) fn policies(policies: &Value) -> String {
    let head = ["policy", "quota", "from", "", "allowed/s", "denied/s"];
    table(head, rows(policies), |row| {
        let state = if row["enabled"] == false { "switched off" } else { "" };
        let rate = |field: &str| {
            let rates = &row["rates"];
            let per = rates["seconds_per_sample"].as_f64().unwrap_or(1.0);
            // The last sample is still being counted.
            let samples = rates[field].as_array().map_or(&[][..], Vec::as_slice);
            // The last sample is still being counted.
            let complete = samples.iter().rev().nth(1).or(samples.last());
            let rate = complete.and_then(Value::as_f64).map(|count| format!("{:.1}", count / per));
            rate.unwrap_or_else(|| "no data".to_owned())
        };
        [
            text(&row["name"]),
            text(&row["quota"]),
            text(&row["source"]),
            state.to_owned(),
            rate("allowed"),
            rate("denied"),
        ]
    })
    .to_string()
}

pub(crate) fn overrides(overrides: &Value) -> String {
    let head = ["policy", "key", "override", "until", "by", "reason", "version"];
    let table = table(head, rows(overrides), |row| {
        let kind = &row["kind"];
        let kind = if kind["quota"].is_null() { text(kind) } else { text(&kind["quota"]) };
        let [policy, key, by, reason, version] =
            ["policy", "key", "by", "reason", "version"].map(|field| text(&row[field]));
        [policy, key, kind, time(&row["until"]), by, reason, version]
    });
    or_else(table, overrides, "no override is in force")
}

pub(crate) fn audit(entries: &Value) -> String {
    let head = ["time", "action", "policy", "key", "before", "after", "by", "reason"];
    let table = table(head, rows(entries), |row| {
        ["time", "action", "policy", "key", "before", "after", "by", "reason"]
            .map(|field| if field == "time" { time(&row[field]) } else { text(&row[field]) })
    });
    or_else(table, entries, "nothing was changed yet")
}

/// Returns what a change has changed, in the words of the service.
pub(crate) fn change(change: &Value) -> String {
    printable(&text(&change["message"]))
}

fn table<const N: usize>(
    head: [&str; N],
    rows: &[Value],
    row: impl Fn(&Value) -> [String; N],
) -> Table {
    let mut table = Table::new();
    table.load_preset(UTF8_HORIZONTAL_ONLY);
    table.remove_style(TableComponent::HorizontalLines);
    table.set_content_arrangement(ContentArrangement::Dynamic);
    table.set_header(head);
    rows.iter().for_each(|value| {
        table.add_row(row(value).map(|cell| printable(&cell)));
    });
    table
}

fn or_else(table: Table, rows: &Value, empty: &str) -> String {
    if self::rows(rows).is_empty() { empty.to_owned() } else { table.to_string() }
}

fn rows(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}

fn text(value: &Value) -> String {
    match value {
        Value::Null => String::new(),
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}

/// Replaces control characters: an attacker may have written a key, and a terminal obeys them.
fn printable(text: &str) -> String {
    text.chars().map(|it| if it.is_control() { '\u{fffd}' } else { it }).collect()
}

fn seconds(value: &Value) -> String {
    value.as_f64().map_or_else(String::new, |seconds| {
        let rounded = Duration::from_millis((seconds * 1_000.0).ceil().max(0.0) as u64);
        humantime::format_duration(rounded).to_string()
    })
}

fn time(value: &Value) -> String {
    let since = value.as_u64().map(Duration::from_millis);
    let time = since.and_then(|since| SystemTime::UNIX_EPOCH.checked_add(since));
    time.map_or_else(|| text(value), |time| humantime::format_rfc3339_seconds(time).to_string())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    #[test]
    fn a_key_cannot_write_to_the_terminal() {
        let offenders = json!([{ "policy": "demo", "key": "\u{1b}[2Jx", "denied": 3, "spent": 0 }]);
        let text = super::offenders(&offenders);
        assert!(!text.contains('\u{1b}') && text.contains("[2Jx"), "{text}");
    }
}
