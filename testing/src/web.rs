//! An axum server on a free port, and a client for HTTP/1.1.

use std::net::SocketAddr;

use axum::Router;
use bytes::Bytes;
use http::{HeaderMap, Request, Response};
use http_body_util::{BodyExt, Empty};
use hyper::{body::Incoming, client::conn::http1};
use hyper_util::rt::TokioIo;
use tokio::net::{TcpListener, TcpStream};

pub async fn serve(app: Router) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let app = app.into_make_service_with_connect_info::<SocketAddr>();
    tokio::spawn(async move { axum::serve(listener, app).await });
    address
}

/// A connection of a client.
pub struct Client(pub http1::SendRequest<Empty<Bytes>>);

pub struct Reply {
    pub status: u16,
    pub headers: HeaderMap,
    pub body: Bytes,
}

pub async fn http1(address: SocketAddr) -> Client {
    let io = TokioIo::new(TcpStream::connect(address).await.unwrap());
    let (sender, connection) = http1::handshake(io).await.unwrap();
    tokio::spawn(connection);
    Client(sender)
}

impl Client {
    pub async fn get(&mut self, path: &str) -> Reply {
        self.get_with(path, &[]).await
    }

    pub async fn get_with(&mut self, path: &str, headers: &[(&str, &str)]) -> Reply {
        let (head, body) = self.send(path, headers).await.into_parts();
        let body = body.collect().await.unwrap().to_bytes();
        Reply { status: head.status.as_u16(), headers: head.headers, body }
    }

    pub async fn try_get(&mut self, path: &str) -> Result<Response<Incoming>, hyper::Error> {
        self.try_send(path, &[]).await
    }

    pub async fn send(&mut self, path: &str, headers: &[(&str, &str)]) -> Response<Incoming> {
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
