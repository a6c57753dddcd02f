//! The service of one connection: it bounds the time of each request, and records it.

use std::{convert::Infallible, pin::Pin, time::Duration};

use axum::{Router, body::Body, response::Response};
use http::{HeaderValue, Request, Version, header::CONNECTION};
use http_body::Body as _;
use http_body_util::BodyExt;
use hyper::body::Incoming;
use tokio::time::{Instant, timeout};
use tower::ServiceExt;

use super::{
    phase::{Phase, Phases},
    usage::Usage,
};

/// Returns the answer to a request that was not answered in time.
pub(super) type TooSlow = fn() -> Response;

/// The service of one connection.
#[derive(Clone)]
pub(super) struct ConnectionService {
    pub(super) router: Router,
    pub(super) too_slow: TooSlow,
    pub(super) usage: Usage,
    pub(super) phases: Phases,
    /// The time from which on an answer over HTTP/1 is the last one.
    pub(super) ends_at: Instant,
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
                || Instant::now() >= service.ends_at;
            let mut response = match answered {
                Ok(Ok(response)) => response,
                Err(_) => (service.too_slow)(),
            };
            if ends && !is_http2 {
                response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
            }
            // All other bodies are streams, such as the body of `grpc.health.v1.Health/Watch`. They keep the
            // connection in use until they end.
            if response.body().size_hint().exact().is_some() {
                return Ok(response);
            }
            Ok(response.map(|body| {
                Body::new(body.map_frame(move |frame| {
                    let _ = &in_flight;
                    frame
                }))
            }))
        })
    }
}
