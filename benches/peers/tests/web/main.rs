//! Browsers and long responses, over real sockets: CORS, WebSockets and server-sent events.

mod cors;
mod streams;
mod switch;

use std::net::SocketAddr;

use http::HeaderMap;
use plimsoll::{Limiter, Policy};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
};

pub(crate) use plimsoll_testing::web::serve;

pub(crate) fn policy(name: &str, quota: &str) -> Policy {
    Policy::new(name, quota).unwrap()
}

/// Returns the units that `key` has left.
pub(crate) async fn remaining(limiter: &Limiter, policy: &Policy, key: &'static str) -> u64 {
    let peek = limiter.peek(policy.charge(key, 0)).await.unwrap();
    peek.outcomes().next().expect("an outcome").standing().remaining
}

/// A connection of a client that has sent a request.
pub(crate) struct Connection(TcpStream);

impl Connection {
    /// Sends the first line and the headers of a request.
    pub(crate) async fn send(address: SocketAddr, request: &str, headers: &[&str]) -> Self {
        let mut stream = TcpStream::connect(address).await.unwrap();
        let headers: String = headers.iter().map(|line| format!("{line}\r\n")).collect();
        let head = format!("{request} HTTP/1.1\r\nhost: x\r\n{headers}\r\n");
        stream.write_all(head.as_bytes()).await.unwrap();
        Self(stream)
    }

    /// Reads the status and the headers of the response.
    pub(crate) async fn head(&mut self) -> (u16, HeaderMap) {
        let head = self.read_until("\r\n\r\n").await;
        let mut lines = head.lines();
        let status = lines.next().unwrap().split(' ').nth(1).unwrap().parse().unwrap();
        let mut headers = HeaderMap::new();
        for (name, value) in lines.filter_map(|line| line.split_once(": ")) {
            headers.append(name.parse::<http::HeaderName>().unwrap(), value.parse().unwrap());
        }
        (status, headers)
    }

    /// Reads up to the end of `text`.
    pub(crate) async fn read_until(&mut self, text: &str) -> String {
        let mut read = Vec::new();
        while !read.ends_with(text.as_bytes()) {
            read.push(self.0.read_u8().await.expect("the server sends the text"));
        }
        String::from_utf8(read).unwrap()
    }

    /// Sends a message of a WebSocket: one frame, masked with zeros (RFC 6455, section 5.2).
    pub(crate) async fn send_message(&mut self, text: &str) {
        let mut frame = vec![0x81, 0x80 | text.len() as u8, 0, 0, 0, 0];
        frame.extend_from_slice(text.as_bytes());
        self.0.write_all(&frame).await.unwrap();
    }

    /// Reads a message of a WebSocket.
    pub(crate) async fn message(&mut self) -> String {
        assert_eq!(self.0.read_u8().await.unwrap(), 0x81, "one frame of text");
        let mut text = vec![0; self.0.read_u8().await.unwrap().into()];
        self.0.read_exact(&mut text).await.unwrap();
        String::from_utf8(text).unwrap()
    }
}

/// Sends a request, and returns the status and the headers of the response.
pub(crate) async fn ask(address: SocketAddr, request: &str, headers: &[&str]) -> (u16, HeaderMap) {
    Connection::send(address, request, headers).await.head().await
}
