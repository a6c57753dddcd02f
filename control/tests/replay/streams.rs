//! Pipes, interrupts, and several logs of the same requests.

use std::{
    fs,
    io::Write,
    path::{Path, PathBuf},
    process::{Child, Command, Output, Stdio},
    thread,
};

use flate2::{Compression, write::GzEncoder};
use serde_json::{Value, json};

use super::{Log, START, replay, run};

const SECOND: u64 = 1_000_000;
const LIMIT: [&str; 4] = ["--limit", "3/10s", "--limit", "20/min"];

/// Requests of seven addresses, some of them in the same microsecond, and none at a whole second.
fn lines(count: u64) -> Vec<(u64, String, &'static str, u64)> {
    let at = |number: u64| START + 250_001 + number / 3 * 400_000;
    let lines = (0..count).map(|number| (at(number), format!("192.0.2.{}", number % 7), "/", 1));
    lines.collect()
}

/// Starts a replay of the standard input.
fn start(arguments: &[&str]) -> Child {
    let mut command = Command::new(env!("CARGO_BIN_EXE_plimsoll"));
    command.args(["--json", "replay", "-"]).args(arguments);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command.spawn().expect("started")
}

/// Returns the output of a replay of these bytes.
fn pipe(bytes: &[u8], arguments: &[&str]) -> Output {
    let mut child = start(arguments);
    let mut stdin = child.stdin.take().expect("a pipe");
    thread::scope(|scope| {
        scope.spawn(move || stdin.write_all(bytes).expect("read to the end"));
        child.wait_with_output().expect("ended")
    })
}

fn json_of(output: &Output) -> Value {
    serde_json::from_slice(&output.stdout).expect("JSON")
}

/// Returns the numbers of a report, without the names of its logs.
fn numbers(report: &Value) -> Vec<&Value> {
    ["requests", "keys", "from", "to", "skipped_lines", "windows", "candidates", "recommended"]
        .map(|name| report.get(name).unwrap_or_else(|| panic!("{name} is missing in {report:#}")))
        .to_vec()
}

/// Replays several logs.
fn replay_all(logs: &[&Path], arguments: &[&str]) -> Value {
    let others = logs[1..].iter().map(|it| it.to_str().expect("a name"));
    let arguments: Vec<_> = others.chain(arguments.iter().copied()).collect();
    replay(logs[0], &arguments)
}

/// Writes each second line to another log, with this many microseconds added to its times.
fn split(lines: &[(u64, String, &'static str, u64)], ahead: u64) -> [PathBuf; 2] {
    [0, 1].map(|log| {
        let own = lines.iter().skip(log).step_by(2);
        Log::new(own.map(|line| (line.0 + ahead * log as u64, line.1.clone(), line.2, line.3))).path
    })
}

#[test]
fn a_pipe_has_the_numbers_of_the_file() {
    let log = Log::new(lines(3_000));
    let text = fs::read(&log.path).unwrap();
    let mut gzip = GzEncoder::new(Vec::new(), Compression::fast());
    gzip.write_all(&text).unwrap();
    let report = log.replay(&LIMIT);
    assert!(report["candidates"][0]["denied"].as_u64().unwrap() > 500, "{report:#}");
    for bytes in [text, gzip.finish().unwrap()] {
        let output = pipe(&bytes, &LIMIT);
        assert_eq!(output.status.code(), Some(0));
        assert_eq!(numbers(&json_of(&output)), numbers(&report));
    }
}

#[test]
fn an_interrupt_ends_with_the_report_of_what_was_read() {
    let mut child = start(&["--limit", "3/10s"]);
    let mut stdin = child.stdin.take().unwrap();
    let text = fs::read_to_string(Log::new(lines(60_000)).path).unwrap();
    let (first, second) = text.split_at(text.len() / 2);
    // The pipe holds less than this, so the program reads when all is written.
    stdin.write_all(first.as_bytes()).unwrap();
    let interrupted = Command::new("kill").args(["-INT", &child.id().to_string()]).status();
    assert!(interrupted.unwrap().success());
    // The replay ends with the next request, and does not read the rest.
    let _ = stdin.write_all(second.as_bytes());
    drop(stdin);
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(130));
    let report = json_of(&output);
    let requests = report["requests"].as_u64().unwrap();
    assert!((1..60_000).contains(&requests), "{requests}");
    assert_eq!(report["partial"], true);
    assert_eq!(report["candidates"][0]["requests"], requests);
    assert_eq!(numbers(&report).len(), 8);
}

#[test]
fn two_logs_of_a_service_have_the_numbers_of_one() {
    let lines = lines(3_000);
    let whole = Log::new(lines.clone()).replay(&LIMIT);
    let [a, b] = split(&lines, 0);
    let merged = replay_all(&[&a, &b], &LIMIT);
    assert_eq!(numbers(&merged), numbers(&whole));
    assert!(merged["notes"].to_string().contains("2 logs overlap"), "{}", merged["notes"]);
}

#[test]
fn a_clock_that_is_a_second_ahead_is_said_and_corrected() {
    let lines = lines(3_000);
    let whole = Log::new(lines.clone()).replay(&LIMIT);
    let [a, b] = split(&lines, SECOND);
    let ahead = replay_all(&[&a, &b], &LIMIT);
    let notes = ahead["notes"].to_string();
    assert!(notes.contains("a clock that is off by a second"), "{notes}");
    assert_ne!(numbers(&ahead), numbers(&whole));
    let shift = format!("{}=-1s", b.display());
    let corrected = replay_all(&[&a, &b], &[&LIMIT[..], &["--shift", &shift]].concat());
    assert_eq!(numbers(&corrected), numbers(&whole));
}

#[test]
fn a_log_without_requests_recommends_nothing() {
    let log = Log::new([]);
    fs::write(&log.path, "").unwrap();
    for report in [log.replay(&[]), json_of(&pipe(b"", &[]))] {
        assert_eq!((&report["requests"], &report["recommended"]), (&json!(0), &Value::Null));
        assert_eq!(report["notes"][0], "no request was judged");
    }
}

#[test]
fn a_page_that_cannot_be_written_does_not_lose_the_report() {
    let log = Log::new(lines(30));
    let page = log.folder.join("none/report.html");
    let output = run(&log.path, &["--limit", "3/10s", "--html", page.to_str().unwrap()]);
    assert_eq!(output.status.code(), Some(1));
    assert_eq!(json_of(&output)["requests"], 30);
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(error.contains("cannot be written"), "{error}");
}
