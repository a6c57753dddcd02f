//! A real PostgreSQL, on a free loopback port, with its data in a directory of its own. It is stopped when
//! it is dropped. A server that cannot be started fails the test.
//!
//! `PLIMSOLL_POSTGRES_BIN` is the folder of its programs, if it is not Debian's.

use std::{
    fs,
    os::unix::{fs::chown, process::CommandExt},
    path::PathBuf,
    process::{Child, Command, Stdio},
    thread,
    time::Duration,
};

use crate::servers::{directory, free_port};

pub struct Postgres {
    pub port: u16,
    dir: PathBuf,
    arguments: Vec<String>,
    child: Option<Child>,
}

impl Postgres {
    /// Starts a server that does not wait for the disk.
    pub fn start() -> Self {
        Self::start_with(&["fsync=off"])
    }

    /// Starts a server with these settings.
    pub fn start_with(settings: &[&str]) -> Self {
        let dir = directory();
        if let Some((user, group)) = owner() {
            chown(&dir, Some(user), Some(group)).expect("this user is root");
        }
        let data = dir.join("data").to_str().expect("utf-8").to_owned();
        let words = ["-D", &data, "-U", "plimsoll", "-A", "trust", "-E", "UTF8", "--no-sync"];
        let output = command("initdb").args(words).output().expect("it is installed");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let arguments =
            settings.iter().flat_map(|it| ["-c".to_owned(), (*it).to_owned()]).collect();
        let mut server = Self { port: 0, dir, arguments, child: None };
        for _ in 0..5 {
            server.port = free_port();
            if server.try_run() {
                return server;
            }
        }
        panic!("PostgreSQL does not start: {}", server.log());
    }

    /// Runs the server, again after [`kill`](Self::kill).
    pub fn run(&mut self) {
        // Processes of the killed server may still hold its memory.
        for _ in 0..50 {
            if self.try_run() {
                return;
            }
            thread::sleep(Duration::from_millis(100));
        }
        panic!("PostgreSQL does not start again: {}", self.log());
    }

    /// Runs the server, and returns whether it answers.
    fn try_run(&mut self) -> bool {
        let port = self.port.to_string();
        let data = self.dir.join("data");
        let log = fs::File::create(self.dir.join("log")).expect("a log");
        let mut server = command("postgres");
        server.arg("-D").arg(data).args(["-p", &port, "-c", "listen_addresses=127.0.0.1"]);
        server.args(["-c", "unix_socket_directories=", "-c", "max_connections=400"]);
        server.args(&self.arguments).stdout(Stdio::null()).stderr(log);
        let mut child = server.spawn().expect("it is installed");
        for _ in 0..3_000 {
            let mut ready = command("pg_isready");
            ready.args(["-q", "-h", "127.0.0.1", "-p", &port]);
            if ready.status().is_ok_and(|status| status.success()) {
                self.child = Some(child);
                return true;
            }
            if child.try_wait().is_ok_and(|status| status.is_some()) {
                return false;
            }
            thread::sleep(Duration::from_millis(20));
        }
        let _ = (child.kill(), child.wait());
        false
    }

    /// Ends the server as a crash of its machine does: also the processes that serve its connections, which
    /// would answer one more query. Returns when they have ended.
    pub fn kill(&mut self) {
        if let Some(mut child) = self.child.take() {
            let server = format!("/proc/{0}/task/{0}/children", child.id());
            let processes = fs::read_to_string(server).expect("the children of a process");
            child.kill().expect("a running child");
            child.wait().expect("a child");
            let processes: Vec<_> = processes.split_whitespace().collect();
            // Some may have ended by themselves.
            let _ = Command::new("kill").arg("-9").args(&processes).stderr(Stdio::null()).status();
            while processes.iter().any(|process| is_running(process)) {
                thread::sleep(Duration::from_millis(1));
            }
        }
    }

    pub fn url(&self) -> String {
        format!("postgres://plimsoll@127.0.0.1:{}/postgres", self.port)
    }

    fn log(&self) -> String {
        fs::read_to_string(self.dir.join("log")).unwrap_or_default()
    }
}

impl Drop for Postgres {
    fn drop(&mut self) {
        self.kill();
        let _ = fs::remove_dir_all(&self.dir);
    }
}

/// Returns whether a process runs: a zombie does not.
fn is_running(process: &str) -> bool {
    fs::read_to_string(format!("/proc/{process}/stat"))
        .is_ok_and(|stat| !stat.rsplit(") ").next().is_some_and(|rest| rest.starts_with('Z')))
}

/// Returns the user and the group as which the server runs: it refuses to run as root.
fn owner() -> Option<(u32, u32)> {
    let id = |arguments: &[&str]| {
        let output = Command::new("id").args(arguments).output().expect("coreutils");
        String::from_utf8_lossy(&output.stdout).trim().parse::<u32>().ok()
    };
    let is_root = id(&["-u"]) == Some(0);
    is_root.then(|| id(&["-u", "postgres"]).zip(id(&["-g", "postgres"])).expect("Debian's user"))
}

/// Returns the command of one of PostgreSQL's programs, as a user that it accepts.
fn command(program: &str) -> Command {
    let mut command = Command::new(folder().join(program));
    if let Some((user, group)) = owner() {
        command.uid(user).gid(group).env("HOME", "/");
    }
    command.env("LC_ALL", "C.UTF-8").current_dir("/");
    command
}

fn folder() -> PathBuf {
    if let Ok(folder) = std::env::var("PLIMSOLL_POSTGRES_BIN") {
        return folder.into();
    }
    let versions = fs::read_dir("/usr/lib/postgresql").expect("PostgreSQL of Debian is installed");
    let versions = versions.filter_map(|entry| Some(entry.ok()?.path().join("bin")));
    versions.filter(|folder| folder.join("postgres").exists()).max().expect("a server")
}
