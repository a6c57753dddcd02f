//! One connection, from its first byte to its end.

use std::{future::poll_fn, pin::pin, time::Duration};

use hyper::service::service_fn;
use hyper_util::{
    rt::{TokioIo, TokioTimer},
    server::conn::auto::Builder,
};
use tokio::{
    net::TcpStream,
    time::{sleep, sleep_until, timeout},
};

use super::{
    phase::Phase,
    service::ConnectionService,
    streams::{Begun, Streams},
};
use crate::{random, settings::Bounds};

/// The most requests in flight on a connection of HTTP/2. Envoy opens another connection for more.
const MAX_STREAMS: u32 = 1_024;

/// The longest head of a request, in bytes: its line and its headers.
const MAX_HEAD: u32 = 16 * 1_024;

/// The most headers of a request over HTTP/1. Over HTTP/2, the bytes of the head are bounded alone.
const MAX_HEADERS: usize = 64;

/// The time for which a connection that is to end may still write its last response.
const LAST_WRITE: Duration = Duration::from_secs(1);

/// The interval of the pings that find clients that are gone.
const PING_INTERVAL: Duration = Duration::from_secs(30);

/// Returns the configuration of a connection that begins its streams with `begun`.
fn builder(bounds: &Bounds, begun: Begun) -> Builder<Begun> {
    let mut builder = Builder::new(begun);
    builder
        .http1()
        .timer(TokioTimer::new())
        .header_read_timeout(bounds.head_timeout)
        .max_headers(MAX_HEADERS)
        .max_buf_size(MAX_HEAD as usize);
    builder
        .http2()
        .timer(TokioTimer::new())
        .max_concurrent_streams(MAX_STREAMS)
        .max_header_list_size(MAX_HEAD)
        .keep_alive_interval(PING_INTERVAL)
        .keep_alive_timeout(PING_INTERVAL);
    builder
}

/// Serves a connection until it ends.
pub(super) async fn serve(stream: TcpStream, service: ConnectionService, bounds: Bounds) {
    // Answers are small, and each is awaited.
    let _ = stream.set_nodelay(true);
    let usage = service.usage.clone();
    let phases = service.phases.clone();
    let ends_at = service.ends_at;
    let begun = Begun::default();
    let mut streams = Streams::new(begun.clone());
    let builder = builder(&bounds, begun);
    let service = service_fn(move |request| service.clone().answer(request));
    let mut connection = pin!(builder.serve_connection(TokioIo::new(stream), service));
    let first_request = bounds.head_timeout.min(bounds.idle_timeout);
    let end = async {
        tokio::select! {
            () = phases.reach(Phase::Closing) => {}
            () = usage.unused(first_request, bounds.idle_timeout) => {}
            () = async {
                sleep_until(ends_at).await;
                // Over HTTP/1, the next answer ends the connection.
                if !usage.is_http2() {
                    sleep(LAST_WRITE).await;
                }
            } => {}
        }
    };
    tokio::select! {
        _ = poll_fn(|cx| streams.poll(connection.as_mut(), cx)) => return,
        () = end => {}
    }
    // Over HTTP/2, a GOAWAY says which requests are not answered any more (RFC 9113, section 6.8), and those before are
    // answered.
    connection.as_mut().graceful_shutdown();
    let ended = async {
        tokio::select! {
            _ = poll_fn(|cx| streams.poll(connection.as_mut(), cx)) => {}
            // All is answered, and the client does not take it.
            () = usage.unused(LAST_WRITE, LAST_WRITE) => {}
        }
    };
    let _ = timeout(bounds.request_timeout + LAST_WRITE, ended).await;
}

/// Returns an age up to a tenth below `max`, so that connections that were opened together do not end together.
pub(super) fn age(max: Duration) -> Duration {
    let [byte] = random::bytes();
    max - max / 10 * u32::from(byte) / 256
}
