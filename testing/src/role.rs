//! Roles that this test program plays in processes of its own.

use std::{
    env,
    io::{BufRead, BufReader, Read},
    process::{Child, ChildStdin, ChildStdout, Command, Stdio},
};

/// A process that plays a role, until its standard input ends or it is dropped.
pub struct Role {
    child: Child,
    input: Option<ChildStdin>,
    output: BufReader<ChildStdout>,
}

impl Role {
    /// Runs one test of this program, which is ignored otherwise, and finds its part in the environment.
    pub fn start(test: &str, environment: &[(&str, &str)]) -> Self {
        let mut child = Command::new(env::current_exe().expect("this test"))
            .args(["--ignored", "--exact", test, "--nocapture"])
            .envs(environment.iter().copied())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("a process");
        let output = BufReader::new(child.stdout.take().expect("piped"));
        Self { input: child.stdin.take(), output, child }
    }

    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Reads lines up to one that begins with `word`, and returns the rest of that line.
    pub fn says(&mut self, word: &str) -> String {
        for line in self.output.by_ref().lines() {
            let line = line.expect("text");
            if let Some(rest) = line.strip_prefix(word) {
                return rest.trim().to_owned();
            }
        }
        panic!("it ended and never said {word:?}");
    }

    /// Closes the input of the process, waits until it ends, and returns the rest of its output.
    pub fn end(mut self) -> String {
        drop(self.input.take());
        let mut text = String::new();
        self.output.read_to_string(&mut text).expect("text");
        assert!(self.child.wait().expect("an end").success(), "{text}");
        text
    }

    /// A figure of its `/proc/<pid>/status`.
    pub fn status(&self, name: &str) -> u64 {
        let path = format!("/proc/{}/status", self.pid());
        let status = std::fs::read_to_string(path).expect("it runs");
        let line = status.lines().find_map(|line| line.strip_prefix(name)).expect("a line");
        let words = line.trim_start_matches(':').split_whitespace().next();
        words.expect("a figure").parse().expect("a number")
    }
}

impl Drop for Role {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Inside of a role: returns when the standard input ends, as it does when the parent dies.
pub async fn end_of_input() {
    let read = || {
        let _ = std::io::stdin().read_to_end(&mut Vec::new());
    };
    tokio::task::spawn_blocking(read).await.expect("no panic");
}
