//! Tests that need a process of their own.

use std::{
    env,
    process::{Command, Stdio},
};

const ALONE: &str = "PLIMSOLL_TEST_ALONE";

/// Runs `test` again in a process that runs no other test, and returns false. In that process, returns true.
///
/// For tests of what belongs to a process: its allocations, its subscriber, and events that it reports once.
///
/// # Panics
///
/// Panics if the test fails there.
pub fn alone(test: &str) -> bool {
    if env::var(ALONE).is_ok_and(|it| it == test) {
        return true;
    }
    let output = Command::new(env::current_exe().expect("this test"))
        .args(["--exact", test, "--nocapture", "--include-ignored"])
        .env(ALONE, test)
        .stdin(Stdio::null())
        .output()
        .expect("a process");
    let text = [output.stdout, output.stderr].concat();
    let text = String::from_utf8_lossy(&text);
    assert!(output.status.success(), "{text}");
    assert!(text.contains("1 passed"), "there is no test {test:?}: {text}");
    eprintln!("{text}");
    false
}
