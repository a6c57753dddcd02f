//! The service of one connection: it bounds each request, and records it.

use std::{
    convert::Infallible,
    error::Error,
    pin::Pin,
    task::{Context, Poll, ready},
    time::Duration,
};

use axum::{
    Router,
    body::{Body, Bytes},
    response::{IntoResponse, Response},
};
use http::{HeaderValue, Request, StatusCode, Version, header::CONNECTION};
use http_body::{Body as _, Frame, SizeHint};
use http_body_util::{BodyExt, LengthLimitError, Limited};
use hyper::body::Incoming;
use tokio::time::timeout;
use tower::ServiceExt;

use super::{
    phase::{Phase, Phases},
    usage::{StreamGuard, Usage},
};
use crate::http as api;

/// The most headers of a request.
pub(super) const MAX_HEADERS: usize = 64;

/// The most bytes of a body that are handed to the connection at once: the usual size of a frame of HTTP/2.
///
/// With a window of 1 byte, hyper takes a whole piece from the body, and holds it until the client reads it. It takes the
/// next piece when the client has read all of the last one. A body whose last piece is taken no longer keeps its
/// connection in use. So a client can hold the last piece of each response, and the idle timeout does not end it.
const MAX_PIECE_BYTES: usize = 16_384;

/// The service of one connection.
#[derive(Clone)]
pub(super) struct ConnectionService {
    pub(super) router: Router,
    pub(super) usage: Usage,
    pub(super) phases: Phases,
    pub(super) max_body: usize,
    pub(super) request_timeout: Duration,
}

impl hyper::service::Service<Request<Incoming>> for ConnectionService {
    type Response = Response;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Response, Infallible>> + Send>>;

    fn call(&self, request: Request<Incoming>) -> Self::Future {
        let guard = self.usage.begin();
        let is_http2 = request.version() == Version::HTTP_2;
        let service = self.clone();
        Box::pin(async move {
            let response = service.answer(request).await;
            // Over HTTP/1, a body of a known length is written at once. All others keep the connection in use.
            let is_written = !is_http2 && response.body().size_hint().exact().is_some();
            let response = match is_written || response.body().is_end_stream() {
                true => response,
                false => {
                    let guard = service.usage.stream();
                    response.map(|body| Body::new(Stream { body, rest: Bytes::new(), guard }))
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
        // Over HTTP/1, hyper refuses them.
        if request.headers().len() > MAX_HEADERS {
            return too_many_headers(is_grpc);
        }
        let request = request.map(|body| {
            let body = Limited::new(body, self.max_body);
            match is_grpc {
                true => Body::new(body.map_err(as_status)),
                false => Body::new(body),
            }
        });
        let answer = timeout(self.request_timeout, self.router.clone().oneshot(request));
        let mut response = match answer.await {
            Ok(Ok(response)) => response,
            Err(_) => too_slow(is_grpc),
        };
        let ends = || self.phases.now() >= Phase::Draining || self.usage.is_old();
        if version < Version::HTTP_2 && ends() {
            response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
        }
        response
    }
}

fn is_grpc(request: &Request<Incoming>) -> bool {
    let content_type = request.headers().get(http::header::CONTENT_TYPE);
    content_type.is_some_and(|value| value.as_bytes().starts_with(b"application/grpc"))
}

/// Returns the error of a body of gRPC. Without a status of its own, tonic answers `UNKNOWN`.
fn as_status(error: Box<dyn Error + Send + Sync>) -> Box<dyn Error + Send + Sync> {
    match error.is::<LengthLimitError>() {
        true => Box::new(tonic::Status::resource_exhausted("the message is too long")),
        false => error,
    }
}

/// Returns an answer without a body, as hyper does over HTTP/1.
fn too_many_headers(is_grpc: bool) -> Response {
    if is_grpc {
        return tonic::Status::resource_exhausted("the call has too much metadata").into_http();
    }
    StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE.into_response()
}

fn too_slow(is_grpc: bool) -> Response {
    if is_grpc {
        return tonic::Status::deadline_exceeded("the request took too long").into_http();
    }
    let mut response = api::too_slow();
    response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
    response
}

/// A body that keeps its connection in use. It is polled once the client has taken the data before.
struct Stream {
    body: Body,
    /// The data that the body has given, and that are not handed on.
    rest: Bytes,
    guard: StreamGuard,
}

impl Stream {
    /// Returns the next piece of the rest.
    fn piece(&mut self) -> Frame<Bytes> {
        Frame::data(self.rest.split_to(self.rest.len().min(MAX_PIECE_BYTES)))
    }
}

impl http_body::Body for Stream {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        if !self.rest.is_empty() {
            self.guard.polled(false);
            return Poll::Ready(Some(Ok(self.piece())));
        }
        let polled = Pin::new(&mut self.body).poll_frame(cx);
        self.guard.polled(polled.is_pending());
        match ready!(polled) {
            Some(Ok(frame)) => Poll::Ready(Some(Ok(match frame.into_data() {
                Ok(data) => {
                    self.rest = data;
                    self.piece()
                }
                Err(frame) => frame,
            }))),
            other => Poll::Ready(other),
        }
    }

    fn is_end_stream(&self) -> bool {
        self.rest.is_empty() && self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        let (rest, hint) = (self.rest.len() as u64, self.body.size_hint());
        let mut whole = SizeHint::new();
        whole.set_lower(hint.lower() + rest);
        if let Some(upper) = hint.upper() {
            whole.set_upper(upper + rest);
        }
        whole
    }
}
