//! An axum server on a free port, and a client for HTTP/1.1.

mod serve;

use std::net::SocketAddr;

use bytes::Bytes;
use http::{HeaderMap, Request, Response};
use http_body_util::{BodyExt, Empty};
use hyper::{body::Incoming, client::conn::http1};
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;

pub(crate) use self::serve::serve;

/// A connection of a client.
pub(crate) struct Client(pub(crate) http1::SendRequest<Empty<Bytes>>);

pub(crate) struct Reply {
    pub(crate) status: u16,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Bytes,
}

pub(crate) async fn http1(address: SocketAddr) -> Client {
    let io = TokioIo::new(TcpStream::connect(address).await.unwrap());
    let (sender, connection) = http1::handshake(io).await.unwrap();
    tokio::spawn(connection);
    Client(sender)
}

impl Client {
    pub(crate) async fn get(&mut self, path: &str) -> Reply {
        self.get_with(path, &[]).await
    }

    pub(crate) async fn get_with(&mut self, path: &str, headers: &[(&str, &str)]) -> Reply {
        let (head, body) = self.send(path, headers).await.into_parts();
        let body = body.collect().await.unwrap().to_bytes();
        Reply { status: head.status.as_u16(), headers: head.headers, body }
    }

    pub(crate) async fn try_get(&mut self, path: &str) -> Result<Response<Incoming>, hyper::Error> {
        self.try_send(path, &[]).await
    }

    pub(crate) async fn send(
        &mut self,
        path: &str,
        headers: &[(&str, &str)],
    ) -> Response<Incoming> {
        self.try_send(path, headers).await.unwrap()
    }

    async fn try_send(
        &mut self,
        path: &str,
        headers: &[(&str, &str)],
    ) -> Result<Response<Incoming>, hyper::Error> {
        let mut request = Request::get(path).header("host", "localhost");
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        self.0.send_request(request.body(Empty::new()).unwrap()).await
    }
}
