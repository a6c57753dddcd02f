//! The service of one connection: it bounds the time of each request, and records it.

use std::{convert::Infallible, time::Duration};

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

impl ConnectionService {
    /// Answers a request within its time.
    pub(super) async fn answer(self, request: Request<Incoming>) -> Result<Response, Infallible> {
        let is_http2 = request.version() == Version::HTTP_2;
        let in_flight = self.usage.begin(is_http2);
        let answer = self.router.oneshot(request.map(Body::new));
        let answered = timeout(self.request_timeout, answer).await;
        let ends = answered.is_err()
            || self.phases.now() >= Phase::Draining
            || Instant::now() >= self.ends_at;
        let mut response = match answered {
            Ok(Ok(response)) => response,
            Err(_) => (self.too_slow)(),
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
    }
}
