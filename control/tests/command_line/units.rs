//! `check` and `run`: units for cron jobs and shell scripts.

use std::{
    io::{BufRead, BufReader},
    os::unix::process::ExitStatusExt,
    time::Instant,
};

use super::*;

const LIMITS: &str = r#"
[policies]
batch = "10/10min"
quick = "2/2s"
exports = "2 concurrent expires(30s)"

[[rules]]
policy = "batch"
key = { header = "x-job" }
"#;

#[expect(clippy::disallowed_methods, reason = "processes take their own time")]
fn now() -> Instant {
    Instant::now()
}

/// A limits file beside a Redis server.
struct Limits {
    server: Server,
    folder: PathBuf,
    file: String,
}

impl Limits {
    fn new() -> Self {
        let (server, folder) = (Server::start(), directory());
        let file = folder.join("limits.toml");
        // The machine may be busy.
        let text = format!("resilience.deadline = '10s'\n{LIMITS}");
        fs::write(&file, text).expect("written");
        Self { server, folder, file: file.display().to_string() }
    }

    /// Returns the command with the file and the server, and these arguments.
    fn command(&self, command: &str, arguments: &[&str]) -> Command {
        let url = self.server.url();
        plimsoll(&[&[command, "--file", &self.file, "--redis", &url], arguments].concat())
    }

    /// Runs a command, and returns its exit status and its message.
    fn status(&self, command: &str, arguments: &[&str]) -> (i32, String) {
        let output = self.command(command, arguments).output().expect("started");
        let message = String::from_utf8_lossy(&output.stderr).into_owned();
        (output.status.code().expect("no signal"), message)
    }

    fn run(&self, arguments: &[&str]) -> (i32, String) {
        self.status("run", arguments)
    }
}

impl Drop for Limits {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.folder);
    }
}

#[test]
fn the_status_is_of_the_command_or_says_that_it_was_denied() {
    let limits = Limits::new();
    let touched = limits.folder.join("touched").display().to_string();
    let batch = ["--policy", "batch", "--key", "night", "--cost", "4", "--"];
    for status in [0, 7] {
        let exit = format!("exit {status}");
        let ran = limits.run(&[&batch[..], &["sh", "-c", &exit]].concat());
        assert_eq!(ran, (status, String::new()));
    }
    let (status, message) = limits.run(&[&batch[..], &["touch", &touched]].concat());
    assert_eq!(status, 75, "{message}");
    assert!(message.contains("costs 4") && message.contains("2 of 10 units left"), "{message}");
    assert!(message.contains("try again in 9m"), "{message}");
    assert!(!fs::exists(&touched).expect("known"));
    // Another key has units, and so has the key of runs without one.
    for key in [&["--key", "day"][..], &[]] {
        let arguments = [&["--policy", "batch"], key, &["--", "touch", &touched]].concat();
        assert_eq!(limits.run(&arguments).0, 0);
        fs::remove_file(&touched).expect("touched");
    }
    let denied = [&["--json"], &batch[..], &["true"]].concat();
    let error: Value = serde_json::from_str(&limits.run(&denied).1).expect("JSON");
    assert!(error["error"].as_str().expect("a text").starts_with("denied: "), "{error}");
    // A process that makes one check is no instance, so it lowers the share of none.
    let keys: Vec<String> = limits.server.ask("KEYS *");
    assert!(!keys.is_empty() && !keys.iter().any(|key| key.contains("instances")), "{keys:?}");
}

#[test]
fn a_failure_has_a_status_of_its_own() {
    let limits = Limits::new();
    let one = |policy: &'static str, command: &'static str| ["--policy", policy, "--", command];
    for (arguments, status, says) in [
        (&one("batch", "/nowhere/at/all")[..], 127, "/nowhere/at/all: "),
        (&one("batch", "/")[..], 126, "/: "),
        (&one("nightly", "true")[..], 125, "there is no policy \"nightly\", there are: batch"),
        (&one("exports", "true")[..], 125, "limits requests in flight"),
        (&["--policy", "batch", "--cost", "11", "--", "true"], 125, "admits at most 10 at once"),
        (&["--policy", "batch"], 2, "COMMAND"),
        (&["--policy", "batch", "--wait", "0s", "--", "true"], 2, "1s to 400days"),
    ] {
        let (found, message) = limits.run(arguments);
        assert_eq!(found, status, "{arguments:?}: {message}");
        assert!(message.contains(says), "{message}");
    }
    // A store in memory would admit each run.
    let alone = ["run", "--file", &limits.file, "--policy", "batch", "--", "true"];
    let output = plimsoll(&alone).output().expect("started");
    let message = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.code() == Some(125) && message.contains("--redis"), "{message}");
    // No server listens there.
    let gone = [&alone[..3], &["--redis", "redis://127.0.0.1:1/"], &alone[3..]].concat();
    let output = plimsoll(&gone).output().expect("started");
    assert_eq!(output.status.code(), Some(125));
    let (status, _) = limits.status("check", &["night", "--redis", "redis://127.0.0.1:1/"]);
    assert_eq!(status, 2, "an option is there twice");
}

#[test]
fn a_signal_reaches_the_command() {
    let limits = Limits::new();
    for (script, code, signal) in [
        ("trap 'exit 42' TERM; echo ready; while :; do sleep 0.05; done", Some(42), None),
        ("echo ready; sleep 60", None, Some(15)),
    ] {
        let arguments = ["--policy", "batch", "--", "sh", "-c", script];
        let mut command = limits.command("run", &arguments);
        let mut child = command.stdout(Stdio::piped()).spawn().expect("started");
        let mut line = String::new();
        let output = child.stdout.take().expect("piped");
        BufReader::new(output).read_line(&mut line).expect("read");
        assert_eq!(line, "ready\n");
        let killed = Command::new("kill").args(["-TERM", &child.id().to_string()]).status();
        assert!(killed.expect("started").success());
        let status = child.wait().expect("it ends");
        assert_eq!((status.code(), status.signal()), (code, signal));
    }
}

#[test]
fn a_run_waits_for_its_units_and_no_longer_than_allowed() {
    let limits = Limits::new();
    let quick = |wait: &[&'static str], command: &[&'static str]| {
        [&["--policy", "quick", "--cost", "2"], wait, &["--"], command].concat()
    };
    assert_eq!(limits.run(&quick(&[], &["true"])).0, 0);
    let start = now();
    let (status, message) = limits.run(&quick(&["--wait", "1min"], &["sh", "-c", "exit 3"]));
    let waited = start.elapsed();
    assert_eq!(status, 3, "{message}");
    assert!(
        waited > Duration::from_millis(1_000) && waited < Duration::from_secs(30),
        "{waited:?}"
    );
    // Without a time, it may be long. The units come back within 2 s.
    assert_eq!(limits.run(&quick(&["--wait"], &["true"])).0, 0);
    // A wait that would end too late is not begun.
    let batch = ["--policy", "batch", "--cost", "10", "--wait", "5s", "--", "true"];
    assert_eq!(limits.run(&batch).0, 0);
    let start = now();
    let (status, message) = limits.run(&batch);
    assert_eq!(status, 75, "{message}");
    assert!(start.elapsed() < Duration::from_secs(5), "{:?}", start.elapsed());
}

#[test]
fn a_look_spends_nothing() {
    let limits = Limits::new();
    let look = |policy: &str, cost: &str| {
        limits.status("check", &["night", "--policy", policy, "--cost", cost]).0
    };
    assert_eq!((look("batch", "10"), look("batch", "10"), look("batch", "11")), (0, 0, 75));
    let batch = ["--policy", "batch", "--key", "night", "--cost", "8", "--", "true"];
    assert_eq!(limits.run(&batch).0, 0);
    assert_eq!((look("batch", "2"), look("batch", "3"), look("nightly", "1")), (0, 75, 1));
    // Without a policy, each one that has such keys must admit it.
    assert_eq!(limits.status("check", &["night", "--cost", "2"]).0, 0);
    assert_eq!(limits.status("check", &["night", "--cost", "3"]).0, 75);
    let output = limits.command("check", &["night", "--json"]).output().expect("started");
    let rows: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    assert_eq!((&rows[0]["policy"], &rows[0]["remaining"]), (&"batch".into(), &2.into()));
    let output = limits.command("check", &["night"]).output().expect("started");
    assert!(String::from_utf8_lossy(&output.stdout).contains("2 of 10"));
}

/// The changes of an operator are in force for scripts, too.
#[tokio::test(flavor = "multi_thread")]
async fn overrides_are_in_force() {
    let service = Service::with(LIMITS).await;
    let file = service.folder.join("limits.toml").display().to_string();
    let url = service.server.url();
    let status = |key: &str, cost: &str| {
        let arguments = [
            "run", "--file", &file, "--redis", &url, "--policy", "batch", "--key", key, "--cost",
            cost, "--", "true",
        ];
        plimsoll(&arguments).output().expect("started").status.code()
    };
    assert_eq!(status("night", "11"), Some(125));
    service.prints(&["override", "batch", "20/10min"]).await;
    assert_eq!((status("night", "11"), status("night", "11")), (Some(0), Some(75)));
    service.prints(&["override", "batch", "off"]).await;
    assert_eq!(status("night", "11"), Some(0));
    service.prints(&["override", "batch", "end"]).await;
    service.prints(&["block", "day", "--policy", "batch"]).await;
    assert_eq!((status("day", "1"), status("other", "1")), (Some(75), Some(0)));
}
