//! The gRPC service as a server of tonic takes it.

use std::{
    convert::Infallible,
    future::poll_fn,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
};

use bytes::{Bytes, BytesMut};
use envoy_types::pb::envoy::service::ratelimit::v3::{
    RateLimitRequest, RateLimitResponse, rate_limit_service_server::RateLimitServiceServer,
};
use http::{HeaderMap, HeaderName, HeaderValue, Request, Response, header::CONTENT_TYPE};
use http_body::{Body as _, Frame, SizeHint};
use prost::Message;
use tonic::{Status, body::Body, codegen::Service, server::NamedService};

use super::{
    request::MAX_MESSAGE_BYTES,
    service::{EnvoyService, decide},
    shared::Shared,
};

/// The length of the prefix of a message: a flag of compression, and the length of the message.
const PREFIX_BYTES: usize = 5;

const METHOD: &str = "/envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit";
const CONTENT_TYPE_GRPC: HeaderValue = HeaderValue::from_static("application/grpc");
const GRPC_STATUS: HeaderName = HeaderName::from_static("grpc-status");
const STATUS_OK: HeaderValue = HeaderValue::from_static("0");

/// The gRPC service, to add to a server of tonic.
///
/// A request that arrives in one piece, as all but the longest do, is decoded and answered here, which is less work. The
/// generated service of tonic answers all others: those in several pieces, with compression, or with a mistake.
#[derive(Debug, Clone)]
pub struct EnvoyGrpc {
    shared: Arc<Shared>,
    general: RateLimitServiceServer<EnvoyService>,
}

impl EnvoyGrpc {
    pub(super) fn new(shared: Arc<Shared>) -> Self {
        let general = RateLimitServiceServer::new(EnvoyService(Arc::clone(&shared)));
        Self { shared, general: general.max_decoding_message_size(MAX_MESSAGE_BYTES) }
    }
}

impl NamedService for EnvoyGrpc {
    const NAME: &'static str = <RateLimitServiceServer<EnvoyService> as NamedService>::NAME;
}

impl Service<Request<Body>> for EnvoyGrpc {
    type Response = Response<Body>;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Response<Body>, Infallible>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        if request.uri().path() != METHOD {
            return self.general.call(request);
        }
        let mut service = self.clone();
        Box::pin(async move {
            let (parts, mut rest) = request.into_parts();
            let first = poll_fn(|context| Pin::new(&mut rest).poll_frame(context)).await;
            let whole = match &first {
                Some(Ok(frame)) if rest.is_end_stream() => frame.data_ref().and_then(whole),
                _ => None,
            };
            if let Some(request) = whole {
                return Ok(match decide(&service.shared, &request).await {
                    Ok(response) => answer(&response),
                    Err(reason) => Status::from(reason).into_http(),
                });
            }
            let body = Body::new(Resumed { first, rest });
            service.general.call(Request::from_parts(parts, body)).await
        })
    }
}

/// Returns the message of a body that consists of these bytes, unless it has a mistake or is compressed.
fn whole(bytes: &Bytes) -> Option<RateLimitRequest> {
    let (prefix, message) = bytes.split_at_checked(PREFIX_BYTES)?;
    let length = u32::from_be_bytes(prefix[1..].try_into().ok()?);
    let is_whole = prefix[0] == 0 && length as usize == message.len();
    if !is_whole || message.len() > MAX_MESSAGE_BYTES {
        return None;
    }
    RateLimitRequest::decode(message).ok()
}

fn answer(response: &RateLimitResponse) -> Response<Body> {
    let length = response.encoded_len();
    let mut bytes = BytesMut::with_capacity(PREFIX_BYTES + length);
    bytes.extend_from_slice(&[0]);
    // A response is shorter than its request allows, and no request of gRPC has 4 GiB.
    bytes.extend_from_slice(&u32::try_from(length).unwrap_or(u32::MAX).to_be_bytes());
    response.encode_raw(&mut bytes);
    let mut answer =
        Response::new(Body::new(Answer { message: Some(bytes.freeze()), ends: false }));
    answer.headers_mut().insert(CONTENT_TYPE, CONTENT_TYPE_GRPC);
    answer
}

/// The body of an answer: one message, and the status behind it.
struct Answer {
    message: Option<Bytes>,
    ends: bool,
}

impl http_body::Body for Answer {
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        if let Some(message) = self.message.take() {
            return Poll::Ready(Some(Ok(Frame::data(message))));
        }
        if self.ends {
            return Poll::Ready(None);
        }
        self.ends = true;
        let mut trailers = HeaderMap::with_capacity(1);
        trailers.insert(GRPC_STATUS, STATUS_OK);
        Poll::Ready(Some(Ok(Frame::trailers(trailers))))
    }

    fn is_end_stream(&self) -> bool {
        self.ends
    }
}

/// The body of a request whose first frame was read.
struct Resumed {
    first: Option<Result<Frame<Bytes>, Status>>,
    rest: Body,
}

impl http_body::Body for Resumed {
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        match self.first.take() {
            Some(first) => Poll::Ready(Some(first)),
            None => Pin::new(&mut self.rest).poll_frame(context),
        }
    }

    fn is_end_stream(&self) -> bool {
        self.first.is_none() && self.rest.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        if self.first.is_none() { self.rest.size_hint() } else { SizeHint::default() }
    }
}
