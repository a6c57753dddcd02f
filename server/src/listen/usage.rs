//! The usage of a connection: its requests in flight, and the time since it was used.

use std::{
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use tokio::time::{Instant, sleep_until};

/// The usage of a connection. Clones share it.
#[derive(Clone)]
pub(super) struct Usage(Arc<Mutex<State>>);

struct State {
    /// The requests that are not answered, and the streams that have not ended.
    in_flight: usize,
    /// The time at which the connection was opened, or was used last.
    last: Instant,
    has_begun: bool,
    is_http2: bool,
}

/// A request that is not answered, or whose stream has not ended.
pub(super) struct InFlight(Usage);

impl Usage {
    pub(super) fn new() -> Self {
        Self(Arc::new(Mutex::new(State {
            in_flight: 0,
            last: Instant::now(),
            has_begun: false,
            is_http2: false,
        })))
    }

    /// Records that a request has begun: its head is complete.
    pub(super) fn begin(&self, is_http2: bool) -> InFlight {
        let mut state = self.state();
        state.in_flight += 1;
        state.has_begun = true;
        state.is_http2 = is_http2;
        InFlight(self.clone())
    }

    /// Returns whether a request over HTTP/2 has begun.
    pub(super) fn is_http2(&self) -> bool {
        self.state().is_http2
    }

    /// Waits until the connection has sent no request for `first` since it was opened, or has none in flight for
    /// `idle` after the last one.
    pub(super) async fn unused(&self, first: Duration, idle: Duration) {
        loop {
            let next = {
                let state = self.state();
                let now = Instant::now();
                let timeout = if state.has_begun { idle } else { first };
                let ends = state.last + timeout;
                match state.in_flight {
                    0 if ends <= now => return,
                    0 => ends,
                    _ => now + timeout,
                }
            };
            sleep_until(next).await;
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for InFlight {
    fn drop(&mut self) {
        let mut state = self.0.state();
        state.in_flight -= 1;
        state.last = Instant::now();
    }
}
