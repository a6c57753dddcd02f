//! The activity of a connection: its requests in flight, and since when it does nothing.

use std::{
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use tokio::time::Instant;

/// The activity of a connection. Clones share it.
#[derive(Clone)]
pub(super) struct Activity(Arc<Mutex<State>>);

struct State {
    /// The requests that are not answered.
    requests: usize,
    /// The responses whose bodies are streams that have not ended.
    streams: usize,
    /// The number of requests that have begun.
    begun: u64,
    /// True if the connection is one of HTTP/2.
    is_http2: bool,
    /// The time at which the last request was answered.
    last: Instant,
    /// The time at which the first byte of the head of a request arrived, while it is not complete.
    head: Option<Instant>,
}

/// A guard of a request that is not answered.
pub(super) struct RequestGuard(Activity);

/// A guard of a response whose body is a stream.
pub(super) struct StreamGuard(Activity);

/// The first bytes of a connection of HTTP/2 (RFC 9113, section 3.4).
const PREFACE: &[u8] = b"PRI ";

impl Activity {
    pub(super) fn new() -> Self {
        Self(Arc::new(Mutex::new(State {
            requests: 0,
            streams: 0,
            begun: 0,
            is_http2: false,
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

    /// Records that the body of a response is a stream.
    pub(super) fn stream(&self) -> StreamGuard {
        self.state().streams += 1;
        StreamGuard(self.clone())
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

    /// Returns the time at which the connection is closed if nothing happens, or `None` while it has requests.
    pub(super) fn ends_at(&self, head: Duration, idle: Duration) -> Option<Instant> {
        let state = self.state();
        match (state.requests + state.streams, state.head) {
            (0, Some(start)) => Some(start + head),
            (0, None) => Some(state.last + idle),
            _ => None,
        }
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

impl Drop for StreamGuard {
    fn drop(&mut self) {
        let mut state = self.0.state();
        state.streams -= 1;
        state.last = Instant::now();
    }
}
