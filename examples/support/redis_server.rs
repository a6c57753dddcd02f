//! A Redis server for an example, which needs the program `redis-server`.

use std::{
    io,
    net::TcpListener,
    process::{Child, Command, Stdio},
};

/// A Redis server, which is killed when this is dropped.
pub(crate) struct RedisServer(Child);

impl RedisServer {
    /// Starts a server that keeps nothing on disk.
    pub(crate) fn start(port: u16) -> io::Result<Self> {
        let mut command = Command::new("redis-server");
        command.args(["--port", &port.to_string(), "--save", "", "--bind", "127.0.0.1"]);
        Ok(Self(command.stdout(Stdio::null()).spawn()?))
    }
}

impl Drop for RedisServer {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Returns a port that no process listens on.
pub(crate) fn free_port() -> io::Result<u16> {
    Ok(TcpListener::bind("127.0.0.1:0")?.local_addr()?.port())
}
