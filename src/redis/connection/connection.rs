//! One connection that many requests share.

use std::{sync::Arc, time::Duration};

use redis::aio::MultiplexedConnection;

use super::{Liveness, SingleFlight, health};
use crate::redis::error::Failure;

/// One connection that many requests share, and its state.
#[derive(Debug)]
pub(in crate::redis) struct Connection {
    pub(in crate::redis) redis: MultiplexedConnection,
    pub(super) liveness: Arc<Liveness>,
    check: SingleFlight,
}

impl Connection {
    pub(super) fn new(redis: MultiplexedConnection, liveness: Arc<Liveness>) -> Self {
        Self { redis, liveness, check: SingleFlight::new() }
    }

    /// Returns whether requests can be sent over this connection.
    pub(super) fn is_open(&self) -> bool {
        !self.liveness.is_closed()
    }

    /// Starts a [health check](health::check), which sends a `PING` unless other replies arrive.
    pub(super) fn start_check(&self, response_timeout: Duration) {
        let quiet_period = health::quiet_period(response_timeout);
        self.check.start(|| self.health_check(quiet_period, response_timeout));
    }

    /// Waits for the result of a [health check](health::check) with a `PING`, and returns whether
    /// the connection is open.
    pub(super) async fn check(&self, response_timeout: Duration) -> bool {
        // The health check itself fails only if it did not run. The connection is used then.
        let _ = self.check.run(|| self.health_check(Duration::ZERO, response_timeout)).await;
        self.is_open()
    }

    fn health_check(
        &self,
        quiet_period: Duration,
        response_timeout: Duration,
    ) -> impl Future<Output = Result<(), Failure>> + Send + use<> {
        let (redis, liveness) = (self.redis.clone(), Arc::clone(&self.liveness));
        health::check(redis, liveness, quiet_period, response_timeout)
    }
}
