//! Logs as files, and their requests.

mod expressions;
mod formats;
mod hostile;
mod merge;
mod random;

use std::{
    fs,
    net::IpAddr,
    path::{Path, PathBuf},
    process,
    sync::atomic::{AtomicU64, Ordering::Relaxed},
};

use super::{Entry, Logs, ReadOptions};

/// A folder that is removed at the end of a test.
pub(super) struct Folder(PathBuf);

/// The parts of a request, as a test compares them.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct Seen {
    at: u64,
    ip: Option<IpAddr>,
    method: Option<String>,
    target: Option<String>,
    host: Option<String>,
    status: Option<u16>,
    bytes: Option<u64>,
}

impl Folder {
    fn new() -> Self {
        static NUMBER: AtomicU64 = AtomicU64::new(0);
        let name = format!("plimsoll-logs-{}-{}", process::id(), NUMBER.fetch_add(1, Relaxed));
        let folder = std::env::temp_dir().join(name);
        fs::create_dir_all(&folder).unwrap();
        Self(folder)
    }

    fn write(&self, name: &str, content: impl AsRef<[u8]>) -> PathBuf {
        let path = self.0.join(name);
        fs::write(&path, content).unwrap();
        path
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

impl Seen {
    fn of(entry: &Entry) -> Self {
        Self {
            at: entry.at(),
            ip: entry.ip(),
            method: entry.method().map(Into::into),
            target: entry.target().map(Into::into),
            host: entry.host().map(Into::into),
            status: entry.status(),
            bytes: entry.bytes(),
        }
    }
}

/// Returns all requests of logs, and the logs after the last one.
fn read(paths: &[PathBuf], options: &ReadOptions) -> (Vec<Seen>, Logs) {
    let mut logs = Logs::open(paths, options).unwrap();
    let mut seen = Vec::new();
    while let Some(entry) = logs.next().unwrap() {
        seen.push(Seen::of(entry));
    }
    (seen, logs)
}

/// Calls `check` with the only request of a line.
fn with_line(line: impl AsRef<[u8]>, options: &ReadOptions, check: impl FnOnce(&Entry)) {
    let folder = Folder::new();
    let path = folder.write("one.log", line.as_ref());
    let mut logs = Logs::open(&[path], options).unwrap();
    check(logs.next().unwrap().expect("a request"));
}

fn sample(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/logs").join(name)
}
