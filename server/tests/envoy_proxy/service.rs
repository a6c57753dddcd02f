//! The program in a process of its own, which tests kill and start again.

use std::{
    io::{BufRead, BufReader, Read},
    path::Path,
    process::{Child, ChildStdout, Command, Stdio},
    time::Duration,
};

use plimsoll_testing::servers::free_port;

/// The deadline of a request to Redis.
pub(crate) const DEADLINE: Duration = Duration::from_millis(50);

/// A process that serves a configuration.
pub(crate) struct Service {
    pub(crate) port: u16,
    arguments: Vec<String>,
    process: Option<Process>,
}

/// A process that ends with this. Its output is read as long as it runs.
struct Process {
    child: Child,
    /// It stays open, because the program writes to it.
    output: BufReader<ChildStdout>,
}

impl Service {
    /// Starts the service with the files at a path, over Redis or alone.
    pub(crate) fn start(config: &Path, redis: Option<&str>) -> Self {
        Self::start_at(free_port(), config, redis, &[])
    }

    pub(crate) fn start_with(config: &Path, redis: Option<&str>, more: &[&str]) -> Self {
        Self::start_at(free_port(), config, redis, more)
    }

    pub(crate) fn start_at(port: u16, config: &Path, redis: Option<&str>, more: &[&str]) -> Self {
        let (config, grpc) = (config.display().to_string(), format!("127.0.0.1:{port}"));
        let mut arguments = vec!["--envoy-config", &config, "--grpc", &grpc, "--http", "off"];
        if !more.contains(&"--admin") {
            arguments.extend(["--admin", "off"]);
        }
        arguments.extend(redis.into_iter().flat_map(|url| ["--redis", url, "--redis-lazy"]));
        arguments.extend(more);
        let arguments = arguments.into_iter().map(str::to_owned).collect();
        let mut service = Self { port, arguments, process: None };
        service.run();
        service
    }

    /// Starts the process, again after [`kill`](Self::kill).
    pub(crate) fn run(&mut self) {
        let mut child = Command::new(env!("CARGO_BIN_EXE_plimsoll-server"))
            .args(&self.arguments)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .expect("a process");
        let output = BufReader::new(child.stdout.take().expect("piped"));
        let mut process = Process { child, output };
        let mut said = process.output.by_ref().lines().map_while(Result::ok);
        let is_ready = said.any(|line| line.starts_with("grpc on"));
        assert!(is_ready, "the service does not start: {:?}", self.arguments);
        self.process = Some(process);
    }

    /// Kills the process.
    pub(crate) fn kill(&mut self) {
        self.process = None;
    }

    pub(crate) fn url(&self) -> String {
        format!("http://127.0.0.1:{}", self.port)
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
