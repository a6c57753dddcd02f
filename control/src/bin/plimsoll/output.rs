//! Tables for people, of the values that the admin API answers.

use std::{
    io::{self, Write},
    time::{Duration, SystemTime},
};

use comfy_table::{ContentArrangement, Table, TableComponent, presets::UTF8_HORIZONTAL_ONLY};
use serde_json::Value;

use crate::args::By;

/// Prints a text and the end of its line. Unlike `println!`, it does not panic if no program reads the output
/// any more, as `plimsoll top | head -1` does.
pub(crate) fn print(text: &str) -> io::Result<()> {
    let mut stdout = io::stdout().lock();
    writeln!(stdout, "{text}")?;
    stdout.flush()
}

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
            _ if row["source"] == "fallback" => {
                "its store does not answer: the instance decides alone, under its share of the limit"
            }
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

pub(crate) fn offenders(offenders: &Value, by: By) -> String {
    let head = ["policy", "key", "denied", "spent"];
    let table = table(head, rows(offenders), |row| {
        [text(&row["policy"]), key(&row["key"]), text(&row["denied"]), text(&row["spent"])]
    });
    let empty = match by {
        By::Denied => "no key is denied now, or the service does not report its keys",
        By::Spent => "no key has spent units lately, or the service does not report its keys",
    };
    or_else(table, offenders, empty)
}

/// Writes the policies. `note` says why there are no rates, instead of what the service says.
pub(crate) fn policies(policies: &Value, note: Option<&str>) -> String {
    let head = ["policy", "quota", "from", "", "allowed/s", "denied/s"];
    let said = rows(policies).iter().filter_map(|row| row["no_data"].as_str());
    let mut causes: Vec<_> = said.map(|cause| printable(note.unwrap_or(cause))).collect();
    causes.dedup();
    let table = table(head, rows(policies), |row| {
        let state = if row["enabled"] == false { "switched off" } else { "" };
        let rate = |field: &str| {
            let rates = &row["rates"];
            let per = rates["seconds_per_sample"].as_f64().unwrap_or(1.0);
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
    });
    [vec![table.to_string()], causes].concat().join("\n")
}

pub(crate) fn overrides(overrides: &Value) -> String {
    let head = ["policy", "key", "override", "until", "by", "reason", "version"];
    let table = table(head, rows(overrides), |row| {
        let kind = &row["kind"];
        let kind = if kind["quota"].is_null() { text(kind) } else { text(&kind["quota"]) };
        let [policy, by, reason, version] =
            ["policy", "by", "reason", "version"].map(|field| text(&row[field]));
        let key = if row["key"].is_null() { "all keys".to_owned() } else { key(&row["key"]) };
        [policy, key, kind, time(&row["until"]), by, reason, version]
    });
    or_else(table, overrides, "no override is in force")
}

pub(crate) fn audit(entries: &Value) -> String {
    let head = ["time", "action", "policy", "key", "before", "after", "by", "reason"];
    let table = table(head, rows(entries), |row| {
        ["time", "action", "policy", "key", "before", "after", "by", "reason"].map(|field| {
            match field {
                "time" => time(&row[field]),
                "key" => key(&row[field]),
                "after" if row["until"].is_u64() => {
                    format!("{} until {}", text(&row[field]), time(&row["until"]))
                }
                field => text(&row[field]),
            }
        })
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
    for part in [
        TableComponent::HorizontalLines,
        TableComponent::MiddleIntersections,
        TableComponent::LeftBorderIntersections,
        TableComponent::RightBorderIntersections,
    ] {
        table.remove_style(part);
    }
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

/// Returns a key as it is shown. The empty key is not an empty cell.
fn key(value: &Value) -> String {
    if value == "" { "\"\"".to_owned() } else { text(value) }
}

/// Replaces control characters, and those that change the direction of a text: an attacker may have written a
/// key, and a terminal obeys them.
pub(crate) fn printable(text: &str) -> String {
    let is_obeyed = |it: char| {
        it.is_control()
            || matches!(it, '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}')
            || matches!(it, '\u{2028}' | '\u{2029}' | '\u{2066}'..='\u{2069}')
    };
    text.chars().map(|it| if is_obeyed(it) { '\u{fffd}' } else { it }).collect()
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
        let key = "\u{1b}[2Jx\u{202e}y\r\n";
        let offenders = json!([{ "policy": "demo", "key": key, "denied": 3, "spent": 0 }]);
        let text = super::offenders(&offenders, super::By::Denied);
        assert!(!text.contains(['\u{1b}', '\u{202e}', '\r']) && text.contains("[2Jx"), "{text}");
        let change = super::change(&json!({ "message": format!("{key} under demo: blocked") }));
        assert!(!change.contains(['\u{1b}', '\u{202e}', '\r', '\n']), "{change}");
    }

    #[test]
    fn the_override_of_a_policy_is_not_taken_for_that_of_the_empty_key() {
        let entry = |key: Option<&str>| json!([{ "policy": "demo", "key": key, "kind": "off" }]);
        assert!(super::overrides(&entry(None)).contains("all keys"));
        let of_key = super::overrides(&entry(Some("")));
        assert!(of_key.contains("\"\"") && !of_key.contains("all keys"), "{of_key}");
    }

    #[test]
    fn an_instance_that_decides_alone_is_named() {
        let standing = |source| {
            json!([{ "policy": "demo", "quota": "5/min", "remaining": 5,
            "limit": 5, "reset_after": 0.0, "admitted": true, "source": source }])
        };
        assert!(super::standings(&standing("fallback")).contains("the instance decides alone"));
        assert!(super::standings(&standing("shared")).contains("no units spent"));
    }

    #[test]
    fn a_table_has_a_line_for_each_row() {
        let row = |key| json!({ "policy": "demo", "key": key, "denied": 3, "spent": 0 });
        let text = super::offenders(&json!([row("a"), row("b"), row("c")]), super::By::Denied);
        assert_eq!(text.lines().count(), 3 + 3 + 1, "{text}");
    }

    #[test]
    fn an_entry_says_until_when_its_change_applies() {
        let entry = json!({ "time": 0, "action": "set", "policy": "demo", "after": "9/min",
            "until": 3_600_000, "by": "dora", "reason": "a launch" });
        let text = super::audit(&json!([entry]));
        assert!(text.contains("9/min until 1970-01-01T01:00:00Z"), "{text}");
    }
}
