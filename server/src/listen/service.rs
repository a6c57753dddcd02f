//! The service of one connection: it bounds the time of each request, and records it.

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
use http::{HeaderValue, Request, Version, header::CONNECTION};
use http_body::{Body as _, Frame, SizeHint};
use hyper::body::Incoming;
use tokio::time::timeout;
use tower::ServiceExt;

use super::{
    phase::{Phase, Phases},
    usage::{InFlight, Usage},
};

/// Returns the answer to a request that was not answered in time.
pub(crate) type TooSlow = fn() -> Response;

/// The service of one connection.
#[derive(Clone)]
pub(super) struct ConnectionService {
    pub(super) router: Router,
    pub(super) too_slow: TooSlow,
    pub(super) usage: Usage,
    pub(super) phases: Phases,
    pub(super) request_timeout: Duration,
}

impl hyper::service::Service<Request<Incoming>> for ConnectionService {
    type Response = Response;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Response, Infallible>> + Send>>;

    fn call(&self, request: Request<Incoming>) -> Self::Future {
        let is_http2 = request.version() == Version::HTTP_2;
        let in_flight = self.usage.begin(is_http2);
        let service = self.clone();
        Box::pin(async move {
            let answer = service.router.oneshot(request.map(Body::new));
            let answered = timeout(service.request_timeout, answer).await;
            let ends = answered.is_err()
                || service.phases.now() >= Phase::Draining
                || service.usage.is_old();
            let mut response = match answered {
                Ok(Ok(response)) => response,
                Err(_) => (service.too_slow)(),
            };
            if ends && !is_http2 {
                response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
            }
            // All other bodies are streams, such as that of `grpc.health.v1.Health/Watch`.
            if response.body().size_hint().exact().is_some() {
                return Ok(response);
            }
            Ok(response.map(|body| Body::new(Stream { body, _in_flight: in_flight })))
        })
    }
}

/// A body that keeps its connection in use until it ends.
struct Stream {
    body: Body,
    _in_flight: InFlight,
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
