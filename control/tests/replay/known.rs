//! Logs whose answers follow from how they are made.

use super::{Log, START, candidate, run};
use serde_json::json;

const SECOND: u64 = 1_000_000;

/// Address number `key`.
fn ip(key: u64) -> String {
    format!("10.{}.{}.{}", key / 65_536, key / 256 % 256, key % 256)
}

/// `keys` clients that send a request each 6 seconds for `minutes` minutes.
fn steady(keys: u64, minutes: u64) -> Vec<(u64, String, &'static str, u64)> {
    let times = (0..minutes * 10).map(|step| START + step * 6 * SECOND);
    times.flat_map(|at| (0..keys).map(move |key| (at, ip(key), "/api", 1))).collect()
}

#[test]
fn a_uniform_log_needs_just_its_rate() {
    let log = Log::new(steady(300, 5));
    let report = log.replay(&[]);
    assert_eq!((&report["requests"], &report["keys"]), (&json!(15_000), &json!(300)));
    assert_eq!(report["recommended"], "10/min");
    let window = &report["windows"][0];
    assert_eq!([&window["p50"], &window["most"], &window["whole"]], [10, 10, 3_000]);
    assert_eq!(report["from"], "2026-11-19T00:00:00.000Z");
    // 9 a minute: each client is denied its last request of each full window, so one of ten.
    let report = log.replay(&["--limit", "9/min"]);
    let row = candidate(&report, "sliding-log");
    assert_eq!((&row["denied"], &row["denied_keys"]), (&json!(300 * 5), &json!(300)));
    assert_eq!((&row["mark"], &row["requests"]), (&json!("too strict"), &json!(15_000)));
    // With Retry-After, the tenth request waits for 6 s, and so do those behind it, until too many wait.
    let retrying = &row["retrying"];
    let all = ["at_once", "late", "given_up"].map(|it| retrying[it].as_u64().expect("a count"));
    assert_eq!(all.iter().sum::<u64>(), 15_000);
    assert!(all[1] > 0 && all[0] + all[1] > 13_500, "{retrying}");
}

#[test]
fn one_abuser_is_the_only_key_that_is_denied() {
    let mut lines = steady(300, 5);
    lines.extend((0..300).flat_map(|second| {
        (0..20).map(move |_| (START + second * SECOND, "203.0.113.9".to_owned(), "/api", 1))
    }));
    lines.sort();
    let log = Log::new(lines);
    let report = log.replay(&[]);
    // 99 % of the keys fit 10 a minute. The recommendation is for all: the abuser has 6,000 of 21,000 requests.
    assert_eq!(report["windows"][0]["fits_99_percent_of_keys"], "10/min");
    assert_eq!((&report["recommended"], &report["keys"]), (&json!("1200/min"), &json!(301)));
    let report = log.replay(&["--limit", "10/min", "--show-keys"]);
    let row = candidate(&report, "sliding-log");
    // In each minute, 10 pass.
    assert_eq!((&row["denied"], &row["denied_keys"]), (&json!(6_000 - 50), &json!(1)));
    assert_eq!(
        (&row["top"][0]["key"], &row["top"].as_array().map(Vec::len)),
        (&json!("203.0.113.9"), &Some(1))
    );
    // From the second request of second 0 to the first of second 60.
    assert_eq!(row["longest_shut_out_seconds"], 60.0);
    let hashed = log.replay(&["--limit", "10/min"]);
    assert!(!hashed.to_string().contains("203.0.113.9"), "a report shows no keys unless asked");
    // Without the abuser, nothing is denied.
    let report = log.replay(&["--limit", "10/min", "--where", "ip!=203.0.113.9"]);
    assert_eq!(candidate(&report, "sliding-log")["denied"], 0);
    assert_eq!((&report["filtered"], &report["requests"]), (&json!(6_000), &json!(15_000)));
}

#[test]
fn a_launch_is_the_peak_of_a_day() {
    // 200 clients for a day, a request each 10 minutes. In the minute from 12:00 on, each sends one each 2 s.
    let day = (0..144).map(|step| START + step * 600 * SECOND);
    let mut lines: Vec<_> =
        day.flat_map(|at| (0..200).map(move |key| (at + key, ip(key), "/shop", 1))).collect();
    let noon = START + 12 * 3_600 * SECOND;
    let launch = (1..=30).map(|step| noon + step * 2 * SECOND);
    lines.extend(launch.flat_map(|at| (0..200).map(move |key| (at + key, ip(key), "/shop", 1))));
    lines.sort();
    let log = Log::new(lines);
    // The launch ends just when the request of 12:00 leaves the window. An hour has six more.
    let report = log.replay(&["--window", "1min", "--window", "1h"]);
    let peaks =
        |window: usize| [&report["windows"][window]["p50"], &report["windows"][window]["most"]];
    assert_eq!((peaks(0), peaks(1)), ([&json!(30); 2], [&json!(36); 2]));
    assert_eq!(report["windows"][1]["recommended"], "36/h");
    assert_eq!(
        (&report["recommended"], &report["windows"][0]["whole"]),
        (&json!("30/min"), &json!(6_000))
    );
}

#[test]
fn costs_and_keys_are_expressions() {
    let lines =
        (0..10).map(|step| (START + step, ip(step % 2), ["/a", "/b"][step as usize % 2], step));
    let log = Log::new(lines);
    let report = log.replay(&["--key", "path", "--cost", "field:units", "--limit", "12/min"]);
    // /a costs 0, 2, 4, 6, 8 and /b 1, 3, 5, 7, 9.
    let row = candidate(&report, "fixed-window");
    assert_eq!((&row["denied"], &row["denied_keys"]), (&json!(1 + 2), &json!(2)));
    assert_eq!(
        (&report["windows"][0]["p50"], &report["windows"][0]["most"]),
        (&json!(20), &json!(25))
    );
}

#[test]
fn mistakes_are_failures_with_a_status() {
    let log = Log::new([]);
    for (arguments, text, status) in [
        (&["--limit", "20 concurrent"][..], "in flight together", 2),
        (&["--limit", "10/fortnight"], "fortnight", 2),
        (&["--limits", "nowhere.toml"], "nowhere.toml", 1),
        (&["--limits", "a.toml", "--key", "ip"], "cannot be used with", 2),
    ] {
        let output = run(&log.path, arguments);
        let error = String::from_utf8_lossy(&output.stderr);
        assert!(
            error.contains(text) && output.status.code() == Some(status),
            "{arguments:?}: {error}"
        );
    }
    let output = run(&log.folder.join("missing.log"), &[]);
    assert_eq!(output.status.code(), Some(1));
}
