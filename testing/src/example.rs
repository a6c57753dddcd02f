//! Starts an example, and sends requests to it.

use std::{
    env,
    io::{BufRead, BufReader, Read, Write},
    net::TcpStream,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    time::Duration,
};

use serde_json::Value;

/// An example that runs, and its address.
pub struct Example {
    pub process: Child,
    pub address: String,
}

impl Drop for Example {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// Returns the command of an example. Cargo builds examples beside the directory of the tests.
pub fn program(name: &str) -> Command {
    let mut path: PathBuf = env::current_exe().unwrap();
    path.pop();
    path.pop();
    at(&path.join("examples").join(name))
}

/// Returns the command of an example that [`build`] has built.
pub fn at(path: &Path) -> Command {
    let mut command = Command::new(path);
    command.env_remove("REDIS_URL").stdout(Stdio::piped());
    command
}

/// Builds an example as it is now, and returns its path. `options` select the package and its features. They
/// are the same as for the tests, so that little is compiled. `PLIMSOLL_BUILD` replaces them if the tests were
/// built with others.
pub fn build(name: &str, options: &[&str]) -> PathBuf {
    let cargo = env::var("CARGO").unwrap_or_else(|_| "cargo".to_owned());
    let mut build = Command::new(cargo);
    build.args(["build", "--example", name, "--message-format", "json"]);
    match env::var("PLIMSOLL_BUILD") {
        Ok(options) => build.args(options.split(' ')),
        Err(_) => build.args(options),
    };
    if !cfg!(debug_assertions) {
        build.arg("--release");
    }
    // Cargo sets these for the test, and build scripts that look at them would run again.
    for (name, _) in env::vars_os() {
        let is_of_test = name.to_str().is_some_and(|name| {
            ["CARGO_PKG_", "CARGO_MANIFEST_", "CARGO_CRATE_", "CARGO_BIN_"]
                .iter()
                .any(|prefix| name.starts_with(prefix))
        });
        if is_of_test {
            build.env_remove(name);
        }
    }
    let built = build.stderr(Stdio::inherit()).output().expect("cargo is installed");
    assert!(built.status.success(), "{name} is not built");
    let messages = String::from_utf8(built.stdout).expect("utf-8");
    let mut messages = messages.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    let path = messages.find_map(|it| Some(it["executable"].as_str()?.to_owned()));
    path.expect("an executable").into()
}

/// Starts an example that is a server.
pub fn start(name: &str) -> Example {
    start_program(&mut program(name))
}

pub fn start_program(program: &mut Command) -> Example {
    let mut process = program.env("ADDR", "127.0.0.1:0").spawn().expect("it is built");
    let mut line = String::new();
    BufReader::new(process.stdout.as_mut().unwrap()).read_line(&mut line).unwrap();
    let address = line.strip_prefix("listening on http://").expect(&line).trim().to_owned();
    Example { process, address }
}

pub struct Reply {
    pub status: u16,
    pub head: String,
    pub body: String,
}

impl Example {
    pub fn send(&self, method: &str, path: &str, headers: &[(&str, &str)], body: &str) -> Reply {
        let mut stream = TcpStream::connect(&self.address).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        let mut text = format!("{method} {path} HTTP/1.1\r\nhost: x\r\nconnection: close\r\n");
        for (name, value) in headers {
            text += &format!("{name}: {value}\r\n");
        }
        text += &format!("content-length: {}\r\n\r\n{body}", body.len());
        stream.write_all(text.as_bytes()).unwrap();
        let mut reply = String::new();
        stream.read_to_string(&mut reply).unwrap();
        let (head, body) = reply.split_once("\r\n\r\n").expect(&reply);
        let status = head.split(' ').nth(1).unwrap().parse().unwrap();
        Reply { status, head: head.to_lowercase(), body: body.to_owned() }
    }

    pub fn get(&self, path: &str) -> Reply {
        self.send("GET", path, &[], "")
    }
}
