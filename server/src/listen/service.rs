//! The service of one connection: it bounds each request, and records it.

use std::{
    convert::Infallible,
    pin::Pin,
    task::{Context, Poll},
    time::Duration,
};

use axum::{
    Router,
    body::{Body, Bytes},
    response::Response,
};
use http::{HeaderValue, Request, StatusCode, Version, header::CONNECTION};
use http_body::{Body as _, Frame, SizeHint};
use http_body_util::Limited;
use hyper::body::Incoming;
use tokio::time::timeout;
use tower::ServiceExt;

use super::{
    activity::{Activity, StreamGuard},
    phase::{Phase, Phases},
};

/// The service of one connection.
#[derive(Clone)]
pub(super) struct ConnectionService {
    pub(super) router: Router,
    pub(super) activity: Activity,
    pub(super) phases: Phases,
    pub(super) max_body: usize,
    pub(super) request_timeout: Duration,
}

impl hyper::service::Service<Request<Incoming>> for ConnectionService {
    type Response = Response;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Response, Infallible>> + Send>>;

    fn call(&self, request: Request<Incoming>) -> Self::Future {
        let guard = self.activity.begin();
        let service = self.clone();
        Box::pin(async move {
            let response = service.answer(request).await;
            // A body of a known length is written at once. A stream keeps the connection in use.
            let response = match response.body().size_hint().exact() {
                Some(_) => response,
                None => {
                    let guard = service.activity.stream();
                    response.map(|body| Body::new(Stream { body, _guard: guard }))
                }
            };
            drop(guard);
            Ok(response)
        })
    }
}

impl ConnectionService {
    async fn answer(&self, request: Request<Incoming>) -> Response {
        let version = request.version();
        let is_grpc = version == Version::HTTP_2 && is_grpc(&request);
        let request = request.map(|body| Body::new(Limited::new(body, self.max_body)));
        let answer = timeout(self.request_timeout, self.router.clone().oneshot(request));
        let mut response = match answer.await {
            Ok(Ok(response)) => response,
            Err(_) => too_slow(is_grpc),
        };
        if version < Version::HTTP_2 && self.phases.now() >= Phase::Draining {
            response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
        }
        response
    }
}

fn is_grpc(request: &Request<Incoming>) -> bool {
    let content_type = request.headers().get(http::header::CONTENT_TYPE);
    content_type.is_some_and(|value| value.as_bytes().starts_with(b"application/grpc"))
}

fn too_slow(is_grpc: bool) -> Response {
    if is_grpc {
        return tonic::Status::deadline_exceeded("the request took too long").into_http();
    }
    let mut response = Response::new(Body::empty());
    *response.status_mut() = StatusCode::REQUEST_TIMEOUT;
    response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
    response
}

/// A body that is a stream, and keeps its connection in use.
struct Stream {
    body: Body,
    _guard: StreamGuard,
}

impl http_body::Body for Stream {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        Pin::new(&mut self.body).poll_frame(cx)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
