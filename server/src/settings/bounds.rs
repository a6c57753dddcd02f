//! The bounds of the connections and requests of clients.

use std::time::Duration;

use super::{options::Options, values::Time};

/// The bounds of the connections and requests of clients.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Bounds {
    /// The most connections of a listener.
    pub max_connections: usize,
    /// The time in which the head of a request must arrive. Over HTTP/1, it begins with the answer before.
    pub head_timeout: Duration,
    /// The time in which a request must arrive and be answered.
    pub request_timeout: Duration,
    /// The time after which a connection without a request is closed.
    pub idle_timeout: Duration,
    /// The time after which a connection takes no further request. It is closed when its requests are answered.
    pub max_connection_age: Duration,
    /// The time after SIGTERM in which new requests are still answered.
    pub drain: Duration,
    /// The time after which a shutdown no longer waits for answers.
    pub shutdown_timeout: Duration,
}

impl Default for Bounds {
    fn default() -> Self {
        Self {
            max_connections: 10_000,
            head_timeout: Duration::from_secs(10),
            request_timeout: Duration::from_secs(10),
            idle_timeout: Duration::from_secs(60),
            max_connection_age: Duration::from_secs(60 * 60),
            drain: Duration::from_secs(1),
            shutdown_timeout: Duration::from_secs(10),
        }
    }
}

impl Bounds {
    /// Returns the [bounds](Bounds) of these options.
    pub(super) fn new(options: &Options) -> Self {
        let bounds = Self::default();
        Self {
            max_connections: options.max_connections.map_or(bounds.max_connections, |it| it.max(1)),
            head_timeout: time(options.head_timeout, bounds.head_timeout),
            request_timeout: time(options.request_timeout, bounds.request_timeout),
            idle_timeout: time(options.idle_timeout, bounds.idle_timeout),
            max_connection_age: time(options.max_connection_age, bounds.max_connection_age),
            drain: options.drain.map_or(bounds.drain, |it| it.0),
            shutdown_timeout: time(options.shutdown_timeout, bounds.shutdown_timeout),
        }
    }
}

fn time(asked: Option<Time<10>>, default: Duration) -> Duration {
    asked.map_or(default, |it| it.0)
}
