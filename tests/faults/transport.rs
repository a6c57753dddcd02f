//! The ways from the server under test to Redis.

use std::path::PathBuf;

use crate::server::{AUTHORITY, POOL};
use plimsoll_testing::{
    servers::{Certificates, Server, directory, free_port},
    spoiling_proxy::Proxy,
};

/// A way from the server under test to Redis.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Transport {
    Tcp,
    Tls,
    /// The store gets a bb8 pool of the application.
    Pool,
    UnixSocket,
}

/// A Redis, and the way to it.
pub(crate) struct Route {
    pub(crate) redis: Server,
    transport: Transport,
    tls_port: u16,
    socket: PathBuf,
    certificates: Option<Certificates>,
}

impl Route {
    pub(crate) fn start(transport: Transport) -> Self {
        let (tls_port, socket) = (free_port(), directory().join("redis.sock"));
        let certificates = (transport == Transport::Tls).then(Certificates::make);
        let arguments: Vec<String> = match &certificates {
            Some(certificates) => certificates.arguments(tls_port).to_vec(),
            None if transport == Transport::UnixSocket => {
                vec!["--unixsocket".to_owned(), path(&socket).to_owned()]
            }
            None => Vec::new(),
        };
        let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
        let redis = Server::start_with(&arguments);
        Self { redis, transport, tls_port, socket, certificates }
    }

    /// Returns the URL of the server.
    pub(crate) fn url(&self) -> String {
        match self.transport {
            Transport::Tcp | Transport::Pool => self.redis.url(),
            Transport::Tls => format!("rediss://127.0.0.1:{}/", self.tls_port),
            Transport::UnixSocket => format!("unix://{}", path(&self.socket)),
        }
    }

    /// Starts a proxy before the server, and returns it with its URL.
    pub(crate) async fn proxy(&self) -> (Proxy, String) {
        match self.transport {
            Transport::Tcp | Transport::Pool => {
                let proxy = Proxy::start(self.redis.port).await;
                let url = proxy.url();
                (proxy, url)
            }
            Transport::Tls => {
                let proxy = Proxy::start(self.tls_port).await;
                let url = format!("rediss://127.0.0.1:{}/", proxy.port);
                (proxy, url)
            }
            Transport::UnixSocket => {
                let socket = self.socket.with_extension("proxy");
                let proxy = Proxy::on_socket(&socket, &self.socket);
                (proxy, format!("unix://{}", path(&socket)))
            }
        }
    }

    /// Returns the variables with which the server under test takes this way.
    pub(crate) fn environment(&self) -> Vec<(&'static str, String)> {
        match &self.certificates {
            Some(certificates) => vec![(AUTHORITY, certificates.authority())],
            None if self.transport == Transport::Pool => vec![(POOL.0, POOL.1.to_owned())],
            None => Vec::new(),
        }
    }
}

impl Drop for Route {
    fn drop(&mut self) {
        if let Some(dir) = self.socket.parent() {
            let _ = std::fs::remove_dir_all(dir);
        }
    }
}

fn path(socket: &std::path::Path) -> &str {
    socket.to_str().expect("utf-8")
}
