//! The bounds of what clients can send and hold.

use std::{fmt, ops::RangeInclusive, time::Duration};

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
        // A timeout of less than this ends requests that are on their way.
        let short = Duration::from_millis(10);
        let time = |field, time: Option<Time>, default| {
            within(field, time.map(|time| time.0), default, short..=DAY, "10ms to 24h")
        };
        let size = |field, bytes: Option<Bytes>, default, least: usize| {
            let range = least..=16 * 1_024 * 1_024;
            within(field, bytes.map(|bytes| bytes.0), default, range, &format!("{least} to 16MiB"))
        };
        let (max_connections, drain) = (options.max_connections, options.drain.map(|time| time.0));
        Ok(Self {
            max_connections: within(
                "max-connections",
                max_connections,
                default.max_connections,
                1..=1_000_000,
                "1 to 1000000",
            )?,
            max_body: size("max-body", options.max_body, default.max_body, 1_024)?,
            max_head: size("max-head", options.max_head, default.max_head, 8_192)?,
            head_timeout: time("head-timeout", options.head_timeout, default.head_timeout)?,
            request_timeout: time(
                "request-timeout",
                options.request_timeout,
                default.request_timeout,
            )?,
            idle_timeout: time("idle-timeout", options.idle_timeout, default.idle_timeout)?,
            max_connection_age: time(
                "max-connection-age",
                options.max_connection_age,
                default.max_connection_age,
            )?,
            drain: within("drain", drain, default.drain, Duration::ZERO..=DAY, "0ms to 24h")?,
            shutdown_timeout: time(
                "shutdown-timeout",
                options.shutdown_timeout,
                default.shutdown_timeout,
            )?,
        })
    }
}

fn within<T: PartialOrd + fmt::Debug>(
    field: &str,
    value: Option<T>,
    default: T,
    range: RangeInclusive<T>,
    allowed: &str,
) -> Result<T, SettingsError> {
    let value = value.unwrap_or(default);
    if range.contains(&value) {
        return Ok(value);
    }
    Err(SettingsError::new(field, format_args!("{value:?}"), allowed))
}
