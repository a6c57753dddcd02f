//! The usage of a connection: its requests in flight, the bodies of its responses, and the time since it was
//! used.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use tokio::time::Instant;

/// The usage of a connection. Clones share it.
#[derive(Clone)]
pub(super) struct Usage(Arc<Mutex<State>>);

struct State {
    /// The requests that are not answered.
    requests: usize,
    /// The responses whose bodies have not ended, by their numbers.
    streams: HashMap<u64, Stream>,
    /// The number of the next stream.
    next_stream: u64,
    /// The number of requests that have begun.
    begun: u64,
    /// True if the connection is one of HTTP/2.
    is_http2: bool,
    /// True if the next response is the last one.
    is_old: bool,
    /// The time at which the last request was answered.
    last: Instant,
    /// The time at which the first byte of the head of a request arrived, while it is not complete.
    head: Option<Instant>,
}

/// The body of a response that has not ended.
struct Stream {
    /// True if the service has no data for it. False if the client has not taken the last data.
    is_quiet: bool,
    since: Instant,
}

/// A guard of a request that is not answered.
pub(super) struct RequestGuard(Usage);

/// A guard of a response whose body has not ended.
pub(super) struct StreamGuard {
    usage: Usage,
    number: u64,
}

/// The first bytes of a connection of HTTP/2 (RFC 9113, section 3.4).
const PREFACE: &[u8] = b"PRI ";

/// The time for which a response may be quiet, such as that of `grpc.health.v1.Health/Watch`. Its client then opens
/// it again.
const MAX_QUIET: Duration = Duration::from_secs(60 * 60);

impl Usage {
    pub(super) fn new() -> Self {
        Self(Arc::new(Mutex::new(State {
            requests: 0,
            streams: HashMap::new(),
            next_stream: 0,
            begun: 0,
            is_http2: false,
            is_old: false,
            last: Instant::now(),
            head: None,
        })))
    }

    /// Records that the client has sent these bytes.
    pub(super) fn received(&self, bytes: &[u8]) {
        let mut state = self.state();
        if state.begun == 0 && state.head.is_none() && bytes.starts_with(PREFACE) {
            state.is_http2 = true;
        }
        // Frames of HTTP/2 also arrive without a request, such as pings.
        if !state.is_http2 && state.requests == 0 && state.head.is_none() {
            state.head = Some(Instant::now());
        }
    }

    /// Records that a request has begun: its head is complete.
    pub(super) fn begin(&self) -> RequestGuard {
        let mut state = self.state();
        state.requests += 1;
        state.begun += 1;
        state.head = None;
        RequestGuard(self.clone())
    }

    /// Records that the body of a response begins. The client has taken nothing of it.
    pub(super) fn stream(&self) -> StreamGuard {
        let mut state = self.state();
        let number = state.next_stream;
        state.next_stream += 1;
        state.streams.insert(number, Stream { is_quiet: false, since: Instant::now() });
        StreamGuard { usage: self.clone(), number }
    }

    /// Records that the connection has reached its age: the next response is its last one. Returns whether the
    /// connection is one of HTTP/2, which ends by a frame of its own.
    pub(super) fn grow_old(&self) -> bool {
        let mut state = self.state();
        state.is_old = true;
        state.is_http2
    }

    /// Returns whether the connection has reached its age.
    pub(super) fn is_old(&self) -> bool {
        self.state().is_old
    }

    /// Returns whether a request has begun.
    pub(super) fn has_begun(&self) -> bool {
        self.state().begun > 0
    }

    /// Returns the time since the last request was answered. It is zero while one is not answered.
    pub(super) fn idle(&self) -> Duration {
        let state = self.state();
        if state.requests > 0 { Duration::ZERO } else { state.last.elapsed() }
    }

    /// Returns the time at which the connection is closed if nothing happens, or `None` while requests are in
    /// flight. It is the earliest of:
    ///
    /// - `head` after the head of a request has begun, or `idle` after the last answer, if the connection has no
    ///   requests and no bodies of responses;
    /// - `idle` after the service has had data that the client does not take: over HTTP/2, a client can give a
    ///   response no flow-control window (RFC 9113, section 5.2), and would hold the connection for ever;
    /// - [`MAX_QUIET`] after a response has had its last data.
    pub(super) fn ends_at(&self, head: Duration, idle: Duration) -> Option<Instant> {
        let state = self.state();
        let unused = match (state.requests == 0 && state.streams.is_empty(), state.head) {
            (true, Some(start)) => Some(start + head),
            (true, None) => Some(state.last + idle),
            (false, _) => None,
        };
        let end_of =
            |stream: &Stream| stream.since + if stream.is_quiet { MAX_QUIET } else { idle };
        unused.into_iter().chain(state.streams.values().map(end_of)).min()
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for RequestGuard {
    fn drop(&mut self) {
        let mut state = self.0.state();
        state.requests -= 1;
        state.last = Instant::now();
    }
}

impl StreamGuard {
    /// Records that the client has taken all data before, and whether the service has no more data now.
    pub(super) fn polled(&self, is_quiet: bool) {
        let mut state = self.usage.state();
        let Some(stream) = state.streams.get_mut(&self.number) else { return };
        // A stream that stays quiet may be polled again, which is no data.
        if !(stream.is_quiet && is_quiet) {
            *stream = Stream { is_quiet, since: Instant::now() };
        }
    }
}

impl Drop for StreamGuard {
    fn drop(&mut self) {
        let mut state = self.usage.state();
        state.streams.remove(&self.number);
        state.last = Instant::now();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn data_must_be_taken_and_a_quiet_stream_ends_after_an_hour() {
        let (start, usage) = (Instant::now(), Usage::new());
        let ends = || usage.ends_at(Duration::from_secs(10), Duration::from_secs(60));
        let seconds = || ends().map(|at| (at - start).as_secs());
        assert_eq!(seconds(), Some(60));
        let request = usage.begin();
        assert_eq!(seconds(), None);
        let stream = usage.stream();
        drop(request);
        assert_eq!(seconds(), Some(60));
        stream.polled(true);
        assert_eq!(seconds(), Some(3_600));
        // A stream that stays quiet has no new hour.
        let before = ends();
        stream.polled(true);
        assert_eq!(ends(), before);
        // Requests in flight do not excuse a response that is not taken.
        let request = usage.begin();
        stream.polled(false);
        assert_eq!(seconds(), Some(60));
        let before = ends();
        stream.polled(false);
        assert!(ends() > before);
        drop(stream);
        assert_eq!(seconds(), None);
        drop(request);
        assert_eq!(seconds(), Some(60));
    }
}
