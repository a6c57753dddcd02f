//! Tables for people, of the values that the admin API answers.

use std::{
    io::{self, Write},
    time::{Duration, SystemTime},
};

use comfy_table::{
    CellAlignment, ColumnConstraint, ContentArrangement, Table, TableComponent,
    presets::UTF8_HORIZONTAL_ONLY,
};
use serde_json::Value;

use crate::args::By;

/// The most columns of a table. A narrower terminal has less.
const WIDTH: u16 = 100;

/// The longest note in a table, in bytes. A longer one is written below it.
const MAX_NOTE: usize = 20;

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
    let mut below = Vec::new();
    let table = table(head, rows(standings), |row| {
        let policy = text(&row["policy"]);
        let mut note = note(row);
        if note.len() > MAX_NOTE {
            below.push(printable(&format!("{policy}: {note}")));
            note = "see below".into();
        }
        if row["no_data"].is_string() {
            let none = String::new;
            return [policy, none(), none(), none(), none(), note];
        }
        let left = format!("{} of {}", text(&row["remaining"]), text(&row["limit"]));
        let next = seconds(&row["retry_after"]);
        [policy, text(&row["quota"]), left, next, seconds(&row["reset_after"]), note]
    });
    below.insert(0, or_else(table, standings, "no policy is registered"));
    below.join("\n")
}

/// Returns what is to be said about a standing.
fn note(row: &Value) -> String {
    if let Some(cause) = row["no_data"].as_str() {
        return cause.to_owned();
    }
    let note = if row["source"] == "fallback" {
        "its store does not answer: the instance decides alone, under its share of the limit"
    } else if row["admitted"] == false {
        "limited"
    } else if row["reset_after"] == 0.0 {
        // A key without spent units is like one that was never charged.
        "no units spent: not charged yet, or all have come back"
    } else if row["is_own_quota"] == true {
        "own quota"
    } else {
        ""
    };
    note.to_owned()
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

/// Writes overrides, or this text if there are none.
pub(crate) fn overrides(overrides: &Value, empty: &str) -> String {
    let head = ["policy", "key", "override", "until", "by", "reason", "version"];
    let table = table(head, rows(overrides), |row| {
        let kind = &row["kind"];
        let kind = if kind["quota"].is_null() { text(kind) } else { text(&kind["quota"]) };
        let [policy, by, reason, version] =
            ["policy", "by", "reason", "version"].map(|field| text(&row[field]));
        let key = if row["key"].is_null() { "all keys".to_owned() } else { key(&row["key"]) };
        [policy, key, kind, time(&row["until"]), by, reason, version]
    });
    or_else(table, overrides, empty)
}

pub(crate) fn audit(entries: &Value) -> String {
    let head = ["time", "by", "action", "policy", "key", "change", "reason"];
    let table = table(head, rows(entries), |row| {
        let [by, action, policy, reason] =
            ["by", "action", "policy", "reason"].map(|field| text(&row[field]));
        let [before, after] = ["before", "after"].map(|field| match &row[field] {
            Value::Null => "none".to_owned(),
            state => text(state),
        });
        let until = match (row["time"].as_u64(), row["until"].as_u64()) {
            (Some(start), Some(end)) => {
                let seconds = end.saturating_sub(start).div_ceil(1_000);
                format!(" for {}", humantime::format_duration(Duration::from_secs(seconds)))
            }
            _ => String::new(),
        };
        let change = format!("{before} → {after}{until}");
        [time(&row["time"]), by, action, policy, key(&row["key"]), change, reason]
    });
    or_else(table, entries, "nothing was changed yet, or Redis has lost its data")
}

/// Returns what a change has changed, in the words of the service.
pub(crate) fn change(change: &Value) -> String {
    printable(&text(&change["message"]))
}

/// Returns an empty table with a line below its head, and no other lines.
pub(crate) fn plain_table() -> Table {
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
    table
}

pub(crate) fn table<const N: usize>(
    head: [&str; N],
    rows: &[Value],
    mut row: impl FnMut(&Value) -> [String; N],
) -> Table {
    let mut table = plain_table();
    table.set_content_arrangement(ContentArrangement::Dynamic);
    table.set_width(table.width().unwrap_or(WIDTH).min(WIDTH));
    table.set_header(head);
    rows.iter().for_each(|value| {
        table.add_row(row(value).map(|cell| printable(&cell)));
    });
    // Texts wrap, and times do not.
    for (column, head) in table.column_iter_mut().zip(head) {
        if ["time", "until", "since", "last seen", "next in", "full in"].contains(&head) {
            column.set_constraint(ColumnConstraint::ContentWidth);
        }
        if head.ends_with("/s") || head.ends_with('%') {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
    table
}

pub(crate) fn or_else(table: Table, rows: &Value, empty: &str) -> String {
    if self::rows(rows).is_empty() { empty.to_owned() } else { table.to_string() }
}

pub(crate) fn rows(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}

pub(crate) fn text(value: &Value) -> String {
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
    let printed = text.chars().map(|it| match it {
        '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' => '\u{fffd}',
        '\u{2028}' | '\u{2029}' | '\u{2066}'..='\u{2069}' => '\u{fffd}',
        it if it.is_control() => '\u{fffd}',
        it => it,
    });
    printed.collect()
}

pub(crate) fn seconds(value: &Value) -> String {
    value.as_f64().map_or_else(String::new, |seconds| {
        let rounded = Duration::from_millis((seconds * 1_000.0).ceil().max(0.0) as u64);
        humantime::format_duration(rounded).to_string()
    })
}

pub(crate) fn time(value: &Value) -> String {
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
    fn the_override_of_a_policy_is_no_override_of_the_empty_key() {
        let entry = |key: Option<&str>| json!([{ "policy": "demo", "key": key, "kind": "off" }]);
        assert!(super::overrides(&entry(None), "").contains("all keys"));
        let of_key = super::overrides(&entry(Some("")), "");
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

    /// Each text is as long as those that operators write.
    #[test]
    fn a_table_fits_100_columns_and_breaks_no_time() {
        let entry = json!([{ "time": 1_795_000_000_000_u64, "by": "operator-of-the-night",
            "action": "unblock", "policy": "search-of-customers", "key": "#1f2e3d4c", "version": 1_795_000_000_000_000_u64,
            "before": "300/10min token-bucket(50)", "after": "5000/10min token-bucket(50)",
            "kind": { "quota": "5000/10min token-bucket(50)" }, "until": 1_795_000_000_000_u64,
            "reason": "incident 4711: the launch of a large customer in the night", "denied": 123_456, "spent": 7 }]);
        let standing = json!([{ "policy": "search-of-customers", "quota": "5000/10min token-bucket(50)",
            "remaining": 5_000, "limit": 5_000, "retry_after": 86_399.9, "reset_after": 86_399.9,
            "admitted": true, "source": "shared" }]);
        for text in [
            super::audit(&entry),
            super::overrides(&entry, ""),
            super::offenders(&entry, super::By::Denied),
            super::standings(&standing),
        ] {
            let widest = text.lines().map(|line| line.chars().count()).max();
            assert!(widest <= Some(100), "{widest:?}\n{text}");
        }
        let times = [super::audit(&entry), super::overrides(&entry, "")];
        assert!(times.iter().all(|it| it.contains("2026-11-18T11:06:40Z")), "{times:?}");
        assert!(super::standings(&standing).contains("23h 59m 59s 900ms"));
    }

    #[test]
    fn an_entry_says_for_how_long_its_change_applies() {
        let entry = json!({ "time": 0, "action": "set", "policy": "demo", "after": "9/min",
            "until": 3_600_000, "by": "dora", "reason": "a launch" });
        let text = super::audit(&json!([entry]));
        assert!(text.contains("none → 9/min for 1h"), "{text}");
    }
}
