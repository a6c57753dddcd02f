//! A redis-server of our own.

use std::{
    net::TcpListener,
    process::{Child, Command, Stdio},
    thread,
    time::Duration,
};

use redis::{Client, Cmd, FromRedisValue};

pub(crate) struct Server {
    child: Child,
    port: u16,
}

impl Server {
    pub(crate) fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let port = listener.local_addr().expect("an address").port();
        drop(listener);
        let child = Command::new("redis-server")
            .args(["--port", &port.to_string(), "--save", "", "--bind", "127.0.0.1"])
            .stdout(Stdio::null())
            .spawn()
            .expect("redis-server is installed");
        let server = Self { child, port };
        while server.client().get_connection().is_err() {
            thread::sleep(Duration::from_millis(10));
        }
        server
    }

    pub(crate) fn url(&self) -> String {
        format!("redis://127.0.0.1:{}/", self.port)
    }

    pub(crate) fn client(&self) -> Client {
        Client::open(self.url()).expect("a valid address")
    }

    pub(crate) fn ask<T: FromRedisValue>(&self, words: &[&str]) -> T {
        let mut connection = self.client().get_connection().expect("a connection");
        let mut command = Cmd::new();
        for word in words {
            command.arg(word);
        }
        command.query(&mut connection).expect("an answer")
    }

    /// Microseconds and calls of EVALSHA since the statistics were reset.
    pub(crate) fn evalsha(&self) -> (f64, f64) {
        let stats: String = self.ask(&["INFO", "commandstats"]);
        let line = stats.lines().find(|line| line.starts_with("cmdstat_evalsha:")).expect("calls");
        let number = |name: &str| -> f64 {
            let rest = line.split(name).nth(1).expect("a field");
            rest.split(',').next().expect("a number").parse().expect("a number")
        };
        (number(",usec="), number("calls="))
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
