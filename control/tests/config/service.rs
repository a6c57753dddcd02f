//! A file in a directory of its own, and an axum server with its limits.

use std::{
    fs,
    net::SocketAddr,
    path::{Path, PathBuf},
    sync::Arc,
};

use axum::{Router, routing::get};
use plimsoll::Limiter;
use plimsoll_control::Config;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
    sync::{Mutex, mpsc},
};

/// A directory that is removed at the end.
pub(crate) struct Directory(PathBuf);

impl Directory {
    pub(crate) fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("plimsoll-{}-{name}", std::process::id()));
        let _ = fs::remove_dir_all(&path);
        fs::create_dir_all(&path).expect("a directory");
        Self(path)
    }

    pub(crate) fn path(&self) -> &Path {
        &self.0
    }

    /// Writes a file, and returns its path.
    pub(crate) fn write(&self, name: &str, text: &str) -> PathBuf {
        let path = self.0.join(name);
        fs::write(&path, text).expect("the file is written");
        path
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// A server with the limits of a file. `/slow` answers when the test lets it.
pub(crate) struct Service {
    address: SocketAddr,
    pub(crate) slow: mpsc::Sender<()>,
}

impl Service {
    pub(crate) async fn start(config: &Config) -> Self {
        let layer = config.layer(&Limiter::in_memory()).expect("the file has rules");
        let (slow, released) = mpsc::channel(1);
        let released = Arc::new(Mutex::new(released));
        let wait = move || async move {
            released.lock().await.recv().await;
            "slow"
        };
        let app = Router::new()
            .route("/", get(|| async { "hello" }))
            .route("/search", get(|| async { "found" }))
            .route("/slow", get(wait))
            .layer(layer)
            .into_make_service_with_connect_info::<SocketAddr>();
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let address = listener.local_addr().expect("an address");
        tokio::spawn(async move { axum::serve(listener, app).await });
        Self { address, slow }
    }

    /// Sends a request, and returns the response as text.
    pub(crate) async fn get(&self, path: &str) -> String {
        let mut stream = TcpStream::connect(self.address).await.expect("a connection");
        let request = format!("GET {path} HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n");
        stream.write_all(request.as_bytes()).await.expect("the request is sent");
        let mut response = String::new();
        stream.read_to_string(&mut response).await.expect("a response");
        response
    }

    /// Sends a request, and returns the status.
    pub(crate) async fn status(&self, path: &str) -> u16 {
        self.get(path).await[9..12].parse().expect("a status")
    }
}
