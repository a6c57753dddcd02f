//! `plimsoll replay`: its numbers against known answers, an oracle, live trials and the layer of a service.

#[path = "../admin_page/browser.rs"]
#[allow(dead_code, reason = "the admin page is typed into")]
mod browser;
mod known;
mod live;
mod oracle;
mod page;
mod streams;

use std::{
    fs,
    path::{Path, PathBuf},
    process::{Command, Output},
};

use plimsoll_testing::servers::directory;
use serde_json::Value;

/// Whole hours since the epoch, in microseconds.
const START: u64 = 1_795_046_400_000_000;

/// A folder with a log of requests, one line each: time in microseconds, address, path and units.
struct Log {
    folder: PathBuf,
    path: PathBuf,
}

impl Log {
    fn new(lines: impl IntoIterator<Item = (u64, String, &'static str, u64)>) -> Self {
        let mut text = "time,ip,path,units\n".to_owned();
        for (at, ip, path, units) in lines {
            text += &format!("{at},{ip},{path},{units}\n");
        }
        let folder = directory();
        let path = folder.join("access.csv");
        fs::write(&path, text).expect("written");
        Self { folder, path }
    }

    fn replay(&self, arguments: &[&str]) -> Value {
        replay(&self.path, arguments)
    }
}

fn run(log: &Path, arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_plimsoll"));
    command.args(["--json", "replay"]).arg(log).args(arguments).output().expect("started")
}

/// Returns the JSON of a replay that succeeds.
fn replay(log: &Path, arguments: &[&str]) -> Value {
    let output = run(log, arguments);
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{arguments:?}: {error}");
    serde_json::from_slice(&output.stdout).expect("JSON")
}

/// Returns the candidate of an algorithm.
fn candidate<'r>(report: &'r Value, algorithm: &str) -> &'r Value {
    let mut rows = report["candidates"].as_array().expect("a list").iter();
    let found =
        rows.find(|row| row["algorithm"].as_str().is_some_and(|it| it.starts_with(algorithm)));
    found.unwrap_or_else(|| panic!("{algorithm} is missing in {report:#}"))
}
