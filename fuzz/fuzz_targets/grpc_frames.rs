//! A message that arrives in one piece gets the answer of the same message in two pieces, which the generated service
//! of tonic decodes with prost.
//!
//! The first byte is the form: that of a message with the right prefix, or bytes as they are. The second byte says where
//! the message is cut.
#![no_main]

use std::{
    collections::VecDeque,
    pin::Pin,
    task::{Context, Poll, Waker},
};

use bytes::Bytes;
use http::{HeaderMap, Request};
use http_body::{Body as _, Frame};
use libfuzzer_sys::fuzz_target;
use plimsoll::{Limiter, ManualClock, MemoryConfig, MemoryStore};
use plimsoll_server::envoy::{Envoy, EnvoyConfig, EnvoyGrpc, EnvoyOptions};
use tonic::{Status, body::Body, codegen::Service};

const LIMITS: &str = "
domain: shop
descriptors:
  - key: user
    rate_limit: { unit: minute, requests_per_unit: 2 }
  - key: path
    value: /cart*
    rate_limit: { name: cart, unit: second, requests_per_unit: 1 }
    descriptors:
      - key: user
        rate_limit: { quota: '5/10s token-bucket(2)' }
  - key: free
    rate_limit: { unlimited: true }
";

const PATH: &str = "/envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit";

/// An answer: the status of HTTP, the message, and the status of gRPC.
#[derive(Debug, PartialEq)]
struct Answer {
    status: u16,
    message: Vec<u8>,
    grpc_status: Option<String>,
    grpc_message: Option<String>,
}

fuzz_target!(|input: &[u8]| {
    let [form, cut, message @ ..] = input else { return };
    let mut bytes = Vec::new();
    if form % 2 == 1 {
        bytes.push(0);
        bytes.extend(u32::try_from(message.len()).expect("a short input").to_be_bytes());
    }
    bytes.extend(message);
    let (first, second) = bytes.split_at(usize::from(*cut).min(bytes.len()));
    let (mut one, mut other) = (service(0), service(1));
    // The second answer depends on what the first has counted.
    for _ in 0..2 {
        let whole = answer(&mut one, &[&bytes]);
        let pieces = answer(&mut other, &[first, second, &[]]);
        assert_eq!(whole, pieces);
        assert_ne!(whole.grpc_status.as_deref(), Some("2"), "unknown");
    }
});

thread_local! {
    /// One for each service, because a configuration has the counts of its limits.
    static CONFIGS: [EnvoyConfig; 2] = [config(), config()];
}

fn config() -> EnvoyConfig {
    EnvoyConfig::from_text("limits.yaml", LIMITS, EnvoyOptions::default()).expect("right limits")
}

fn service(number: usize) -> EnvoyGrpc {
    let config = CONFIGS.with(|configs| configs[number].clone());
    let clock = ManualClock::at(1_700_000_000_000_000);
    let store = MemoryStore::new(MemoryConfig::default().clock(clock));
    Envoy::new(config, Limiter::new(store)).grpc()
}

fn answer(service: &mut EnvoyGrpc, pieces: &[&[u8]]) -> Answer {
    let body = Pieces(pieces.iter().map(|it| Bytes::copy_from_slice(it)).collect());
    let request =
        Request::post(PATH).header("content-type", "application/grpc").header("te", "trailers");
    let mut future = service.call(request.body(Body::new(body)).expect("a request"));
    let mut context = Context::from_waker(Waker::noop());
    let Poll::Ready(Ok(response)) = future.as_mut().poll(&mut context) else { panic!("it waits") };
    let (parts, mut body) = response.into_parts();
    let (mut message, mut trailers) = (Vec::new(), HeaderMap::new());
    loop {
        match Pin::new(&mut body).poll_frame(&mut context) {
            Poll::Ready(None) => break,
            Poll::Ready(Some(Ok(frame))) => match frame.into_data() {
                Ok(data) => message.extend(data),
                Err(frame) => trailers.extend(frame.into_trailers().expect("trailers")),
            },
            Poll::Ready(Some(Err(error))) => panic!("{error}"),
            Poll::Pending => panic!("it waits"),
        }
    }
    // An answer without a message has the status in its head.
    let text = |name: &str| {
        let value = trailers.get(name).or_else(|| parts.headers.get(name));
        value.map(|it| it.to_str().expect("text").to_owned())
    };
    let (grpc_status, grpc_message) = (text("grpc-status"), text("grpc-message"));
    Answer { status: parts.status.as_u16(), message, grpc_status, grpc_message }
}

/// A body that arrives in these pieces.
struct Pieces(VecDeque<Bytes>);

impl http_body::Body for Pieces {
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        Poll::Ready(self.0.pop_front().map(|piece| Ok(Frame::data(piece))))
    }

    fn is_end_stream(&self) -> bool {
        self.0.is_empty()
    }
}
