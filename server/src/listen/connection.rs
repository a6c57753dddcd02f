//! One connection, from its first byte to its end.

use std::{pin::pin, time::Duration};

use hyper_util::{
    rt::{TokioExecutor, TokioIo, TokioTimer},
    server::conn::auto::Builder,
};
use tokio::{
    net::TcpStream,
    time::{Instant, sleep, sleep_until},
};

use super::{
    phase::{Phase, Phases},
    service::{ConnectionService, MAX_HEADERS},
    watched::Watched,
};
use crate::{random, settings::Bounds};

/// The most requests in flight on a connection of HTTP/2. Envoy opens another connection for more.
const MAX_STREAMS: u32 = 1_024;

/// The time for which a connection that is to end may still write its last response.
const LAST_WRITE: Duration = Duration::from_secs(1);

/// The interval of the pings that find clients that are gone.
const PING_INTERVAL: Duration = Duration::from_secs(30);

/// Returns the configuration of connections.
pub(super) fn builder(bounds: &Bounds) -> Builder<TokioExecutor> {
    let mut builder = Builder::new(TokioExecutor::new());
    // `Usage` measures the time of a head, because hyper's timer also runs while a connection waits for its
    // next request.
    builder
        .http1()
        .timer(TokioTimer::new())
        .header_read_timeout(None)
        .max_headers(MAX_HEADERS)
        .max_buf_size(bounds.max_head);
    builder
        .http2()
        .timer(TokioTimer::new())
        .max_concurrent_streams(MAX_STREAMS)
        .max_header_list_size(u32::try_from(bounds.max_head).unwrap_or(u32::MAX))
        .keep_alive_interval(PING_INTERVAL)
        .keep_alive_timeout(PING_INTERVAL);
    builder
}

/// Returns an age up to a tenth below `max`, so that connections that were opened together do not end together.
fn age(max: Duration) -> Duration {
    let [byte] = random::bytes();
    max - max / 10 * u32::from(byte) / 256
}

/// The condition of a connection.
#[derive(PartialEq)]
enum Stage {
    Open,
    /// The service ends. The first request of a new connection is awaited.
    Closing,
    /// The client is asked to send no further request.
    Ending {
        since: Instant,
    },
}

/// Serves a connection until it ends.
pub(super) async fn serve(
    builder: Builder<TokioExecutor>,
    stream: TcpStream,
    service: ConnectionService,
    bounds: Bounds,
    phases: Phases,
) {
    // Answers are small, and each is awaited.
    let _ = stream.set_nodelay(true);
    let usage = service.usage.clone();
    let io = TokioIo::new(Watched::new(stream, usage.clone()));
    let mut connection = pin!(builder.serve_connection(io, service));
    let mut closing = pin!(phases.reach(Phase::Closing));
    let mut timer =
        pin!(sleep_until(Instant::now() + bounds.head_timeout.min(bounds.idle_timeout)));
    let mut old = pin!(sleep(age(bounds.max_connection_age)));
    let mut ends_by_age = false;
    let mut stage = Stage::Open;
    // A client of HTTP/2 that does not acknowledge the end can send further requests.
    let longest_end = bounds.request_timeout + LAST_WRITE;
    loop {
        tokio::select! {
            _ = connection.as_mut() => return,
            () = closing.as_mut(), if stage == Stage::Open => {
                stage = Stage::Closing;
                if usage.has_begun() {
                    connection.as_mut().graceful_shutdown();
                    stage = Stage::Ending { since: Instant::now() };
                }
                timer.as_mut().reset(Instant::now() + LAST_WRITE);
            }
            () = old.as_mut(), if stage == Stage::Open => {
                if ends_by_age {
                    // The client does not let it end, such as with a response that it does not take.
                    return;
                }
                // Over HTTP/1, the next response ends the connection. Over HTTP/2, a GOAWAY says which requests are
                // not answered any more (RFC 9113, section 6.8), and those before are answered.
                ends_by_age = usage.grow_old();
                if ends_by_age {
                    connection.as_mut().graceful_shutdown();
                    old.as_mut().reset(Instant::now() + longest_end);
                } else {
                    old.as_mut().reset(Instant::now() + bounds.max_connection_age);
                }
            }
            () = timer.as_mut() => match stage {
                Stage::Open => {
                    let now = Instant::now();
                    let ends = usage.ends_at(bounds.head_timeout, bounds.idle_timeout);
                    if ends.is_some_and(|ends| ends <= now) {
                        connection.as_mut().graceful_shutdown();
                        stage = Stage::Ending { since: now };
                        timer.as_mut().reset(now + LAST_WRITE);
                    } else {
                        // A head that begins now can end the connection sooner than `ends` says.
                        let soonest = now + bounds.head_timeout.min(bounds.idle_timeout) / 2;
                        let next = ends.map_or(soonest, |ends| ends.min(soonest));
                        timer.as_mut().reset(next.max(now + Duration::from_millis(5)));
                    }
                }
                // The client has sent no request since it connected.
                Stage::Closing if !usage.has_begun() => return,
                // Its last response was written, and a stream is not awaited.
                Stage::Ending { since }
                    if usage.idle() >= LAST_WRITE || since.elapsed() >= longest_end =>
                {
                    return;
                }
                Stage::Closing => {
                    connection.as_mut().graceful_shutdown();
                    stage = Stage::Ending { since: Instant::now() };
                    timer.as_mut().reset(Instant::now() + LAST_WRITE);
                }
                Stage::Ending { .. } => {
                    connection.as_mut().graceful_shutdown();
                    timer.as_mut().reset(Instant::now() + LAST_WRITE);
                }
            },
        }
    }
}
