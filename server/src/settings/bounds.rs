//! The bounds of what clients can send and hold.

use std::time::Duration;

use super::{
    SettingsError,
    options::Options,
    values::{Bytes, Time},
};

/// The bounds of what clients can send and hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Bounds {
    /// The most connections of a listener.
    pub max_connections: usize,
    /// The longest body of a request, in bytes. Messages of Envoy may have 4 MiB, because one that is refused lets
    /// its request pass without a limit.
    pub max_body: usize,
    /// The longest head of a request, in bytes.
    pub max_head: usize,
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
            max_body: 64 * 1_024,
            max_head: 16 * 1_024,
            head_timeout: Duration::from_secs(10),
            request_timeout: Duration::from_secs(10),
            idle_timeout: Duration::from_secs(60),
            max_connection_age: Duration::from_secs(60 * 60),
            drain: Duration::from_secs(1),
            shutdown_timeout: Duration::from_secs(10),
        }
    }
}

/// The longest time of a setting.
pub(super) const DAY: Duration = Duration::from_secs(24 * 60 * 60);

impl Bounds {
    /// Returns the bounds of these options.
    ///
    /// # Errors
    ///
    /// Returns an error if a value is not allowed.
    pub(super) fn new(options: &Options) -> Result<Self, SettingsError> {
        let default = Self::default();
        let time = |field, time: Option<Time>, default: Duration, least: u64| {
            let time = time.map_or(default, |Time(time)| time);
            let is_allowed = (Duration::from_millis(least)..=DAY).contains(&time);
            let allowed = format!("{least}ms to 24h");
            is_allowed
                .then_some(time)
                .ok_or_else(|| SettingsError::new(field, format!("{time:?}"), allowed))
        };
        let size = |field, bytes: Option<Bytes>, default: usize, least: usize| {
            let bytes = bytes.map_or(default, |Bytes(bytes)| bytes);
            let is_allowed = (least..=16 * 1_024 * 1_024).contains(&bytes);
            let allowed = format!("{least} to 16MiB");
            is_allowed.then_some(bytes).ok_or_else(|| SettingsError::new(field, bytes, allowed))
        };
        let max_connections = options.max_connections.unwrap_or(default.max_connections);
        if !(1..=1_000_000).contains(&max_connections) {
            return Err(SettingsError::new("max-connections", max_connections, "1 to 1000000"));
        }
        Ok(Self {
            max_connections,
            max_body: size("max-body", options.max_body, default.max_body, 1_024)?,
            max_head: size("max-head", options.max_head, default.max_head, 8_192)?,
            head_timeout: time("head-timeout", options.head_timeout, default.head_timeout, 10)?,
            request_timeout: time(
                "request-timeout",
                options.request_timeout,
                default.request_timeout,
                10,
            )?,
            idle_timeout: time("idle-timeout", options.idle_timeout, default.idle_timeout, 10)?,
            max_connection_age: time(
                "max-connection-age",
                options.max_connection_age,
                default.max_connection_age,
                10,
            )?,
            drain: time("drain", options.drain, default.drain, 0)?,
            shutdown_timeout: time(
                "shutdown-timeout",
                options.shutdown_timeout,
                default.shutdown_timeout,
                10,
            )?,
        })
    }
}
