//! A process of the service.

use std::{
    fs::File,
    io::{BufRead, BufReader, Read},
    path::PathBuf,
    process::{Child, ChildStdout, Command, ExitStatus, Stdio},
    time::{Duration, Instant},
};

use plimsoll_testing::servers::directory;

use super::client::{Reply, send};

/// A service that runs, and its addresses.
pub(crate) struct Service {
    child: Child,
    stdout: BufReader<ChildStdout>,
    pub(crate) http: String,
    pub(crate) grpc: String,
    pub(crate) admin: String,
    log: PathBuf,
}

/// Returns the command of the program, without variables that change it.
pub(crate) fn program() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_plimsoll-server"));
    for (name, _) in std::env::vars_os() {
        let changes = ["PLIMSOLL_", "REDIS_", "RUNTIME_"];
        if changes.iter().any(|prefix| name.to_string_lossy().starts_with(prefix)) {
            command.env_remove(name);
        }
    }
    command
}

impl Service {
    /// Starts the service at free ports, with these flags.
    pub(crate) fn start(flags: &[&str]) -> Self {
        Self::start_with(flags, &[])
    }

    /// Starts the service with these flags and environment variables.
    pub(crate) fn start_with(flags: &[&str], variables: &[(&str, &str)]) -> Self {
        let log = directory().join("log");
        let mut command = program();
        for listener in ["--http", "--grpc", "--admin"] {
            if !flags.contains(&listener) {
                command.args([listener, "127.0.0.1:0"]);
            }
        }
        command.args(flags).envs(variables.iter().copied());
        command.stdout(Stdio::piped()).stderr(File::create(&log).expect("a log"));
        let mut child = command.spawn().expect("the program is built");
        let mut stdout = BufReader::new(child.stdout.take().expect("piped"));
        let mut line = |start: &str| {
            let mut line = String::new();
            stdout.read_line(&mut line).expect("utf-8");
            let log = std::fs::read_to_string(&log).unwrap_or_default();
            let rest = line.trim_end().strip_prefix(start);
            rest.unwrap_or_else(|| panic!("{line:?} does not begin with {start:?}\n{log}"))
                .to_owned()
        };
        let http = line("http on http://");
        let grpc = line("grpc on ");
        let admin = line("admin on http://");
        let admin = admin.strip_suffix('/').expect("a path").to_owned();
        Self { child, stdout, http, grpc, admin, log }
    }

    pub(crate) fn post(&self, path: &str, body: &str) -> Reply {
        self.post_as(None, path, body)
    }

    pub(crate) fn post_as(&self, token: Option<&str>, path: &str, body: &str) -> Reply {
        let authorization = token.map(|token| format!("Bearer {token}"));
        let mut headers = vec![("content-type", "application/json")];
        headers.extend(authorization.as_deref().map(|value| ("authorization", value)));
        send(&self.http, "POST", path, &headers, body.as_bytes())
    }

    pub(crate) fn get(&self, path: &str) -> Reply {
        send(&self.http, "GET", path, &[], b"")
    }

    /// Checks one charge, and returns the reply.
    pub(crate) fn check(&self, policy: &str, key: &str, cost: u64) -> Reply {
        let body = serde_json::json!({"charges": [{"policy": policy, "key": key, "cost": cost}]});
        self.post("/v1/check", &body.to_string())
    }

    /// Sends a signal, such as `TERM`.
    pub(crate) fn signal(&self, name: &str) {
        let pid = self.child.id().to_string();
        let status = Command::new("kill").args(["-s", name, &pid]).status().expect("kill");
        assert!(status.success());
    }

    /// Waits until the process has ended, and returns its status and the rest of its output.
    pub(crate) fn wait(&mut self, within: Duration) -> (ExitStatus, String) {
        let start = Instant::now();
        let status = loop {
            if let Some(status) = self.child.try_wait().expect("a child") {
                break status;
            }
            assert!(start.elapsed() < within, "it runs after {within:?}: {}", self.log());
            std::thread::sleep(Duration::from_millis(5));
        };
        let mut rest = String::new();
        self.stdout.read_to_string(&mut rest).expect("utf-8");
        (status, rest)
    }

    /// Returns what the service has logged so far.
    pub(crate) fn log(&self) -> String {
        std::fs::read_to_string(&self.log).unwrap_or_default()
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        if let Some(folder) = self.log.parent() {
            let _ = std::fs::remove_dir_all(folder);
        }
    }
}
