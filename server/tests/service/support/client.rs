//! A client for HTTP/1.1 that sends exactly the bytes it is given.

use std::{
    io::{self, Read, Write},
    net::TcpStream,
    time::Duration,
};

use serde_json::Value;

use super::assert_described;

/// A response.
#[derive(Debug)]
pub(crate) struct Reply {
    pub(crate) status: u16,
    /// In lower case.
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) body: Vec<u8>,
}

/// Sends a request, and returns the response, which the OpenAPI document describes.
pub(crate) fn send(
    address: &str,
    method: &str,
    path: &str,
    headers: &[(&str, &str)],
    body: &[u8],
) -> Reply {
    let reply = try_send(address, method, path, headers, body).expect("a response");
    if !path.starts_with("/api") {
        assert_described(method, path, &reply);
    }
    reply
}

fn try_send(
    address: &str,
    method: &str,
    path: &str,
    headers: &[(&str, &str)],
    body: &[u8],
) -> io::Result<Reply> {
    let mut head = format!("{method} {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n");
    for (name, value) in headers {
        head += &format!("{name}: {value}\r\n");
    }
    head += &format!("content-length: {}\r\n\r\n", body.len());
    let mut stream = TcpStream::connect(address)?;
    // The service may answer, and close the connection, before it has read a long body.
    let _ = stream.write_all(head.as_bytes()).and_then(|()| stream.write_all(body));
    read_reply(&mut stream)
}

/// Sends bytes on a connection, and returns the response, whatever it is.
pub(crate) fn exchange(stream: &mut TcpStream, bytes: &[u8]) -> io::Result<Reply> {
    stream.write_all(bytes)?;
    read_reply(stream)
}

/// Reads one response, whose length is stated.
fn read_reply(stream: &mut TcpStream) -> io::Result<Reply> {
    stream.set_read_timeout(Some(Duration::from_secs(30)))?;
    let mut bytes = Vec::new();
    let end = loop {
        if let Some(at) = bytes.windows(4).position(|four| four == b"\r\n\r\n") {
            break at + 4;
        }
        let mut buffer = [0; 4_096];
        match stream.read(&mut buffer)? {
            0 => return Err(io::ErrorKind::UnexpectedEof.into()),
            count => bytes.extend_from_slice(&buffer[..count]),
        }
    };
    let head = String::from_utf8_lossy(&bytes[..end]).to_ascii_lowercase();
    let mut lines = head.lines();
    let status = lines.next().and_then(|line| line.split(' ').nth(1)).unwrap_or_default();
    let headers: Vec<_> = lines
        .filter_map(|line| line.split_once(": "))
        .map(|(name, value)| (name.to_owned(), value.to_owned()))
        .collect();
    let length = headers.iter().find(|(name, _)| name == "content-length");
    let length = length.and_then(|(_, value)| value.parse::<usize>().ok());
    let mut body = bytes.split_off(end);
    match length {
        Some(length) => {
            let read = body.len();
            body.resize(length, 0);
            stream.read_exact(&mut body[read..])?;
        }
        None => drop(stream.read_to_end(&mut body)?),
    }
    let status = status.parse().map_err(|_| io::ErrorKind::InvalidData)?;
    Ok(Reply { status, headers, body })
}

impl Reply {
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(it, _)| it == name).map(|(_, value)| value.as_str())
    }

    pub(crate) fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    pub(crate) fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_else(|_| panic!("not JSON: {self:?}"))
    }

    /// Returns a text of the JSON body.
    pub(crate) fn field(&self, name: &str) -> String {
        self.json()[name]
            .as_str()
            .unwrap_or_else(|| panic!("no {name}: {}", self.text()))
            .to_owned()
    }
}
