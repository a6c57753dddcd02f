//! Starts an example, and sends requests to it.

use std::{
    env,
    io::{BufRead, BufReader, Read, Write},
    net::TcpStream,
    path::PathBuf,
    process::{Child, Command, Stdio},
    time::Duration,
};

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
    let mut command = Command::new(path.join("examples").join(name));
    command.env_remove("REDIS_URL").stdout(Stdio::piped());
    command
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
